"""Tests an hour in which a service refuses, hangs or is away: every message arrives in the end, and once.

The hour passes by the clock that the notifier gets: a sleep between two tries moves it, and takes no time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.paths import HomePaths
from rung.runner.notify.apprise_send import send
from rung.runner.notify.batches import REPEAT
from rung.runner.notify.notifier import LONGEST_BACK_OFF, LONGEST_BACK_OFF_UNANSWERED
from rung.runner.notify.post import Answer, post
from rung.runner.notify.settings import Target
from rung.runner.state.store import Store
from tests.runner.notify.test_notifier import Wait, add_failed, all_sent, running
from tests.support.message_server import MessageServer, write_settings

# Apprise imports what this version of Python calls outdated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
HOUR = 3600.0
# The seconds that a request without an answer takes by Apprise's own limit; it is far shorter here.
UNANSWERED = "?rto=0.05"


class Clock:
    """Starts at the events, and moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.at, self.at_the_end = 1000.0, lambda: None

    @property
    def over(self) -> bool:
        return self.at >= 1000.0 + HOUR

    def sleep(self, seconds: float) -> None:
        before, self.at = self.over, self.at + seconds
        if self.over and not before:
            self.at_the_end()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> MessageServer:
    """Return a service that does not listen yet."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return MessageServer()


@pytest.fixture(autouse=True)
def silent_apprise() -> Iterator[None]:
    yield
    logging.getLogger("apprise").handlers.clear()


def send_here(target: Target, text: str, closing: threading.Event) -> Answer:
    """Send with Apprise as the process that sends does, but in this one: a hundred processes take a minute."""
    title, _, body = text.partition("\n")
    said: Any = send(target.url, title, body)
    return Answer(said["accepted"], said["detail"], bool(said.get("arrived")))


def endure(home: Path, store: Store, clock: Clock, wait_until: Wait, url: str) -> list[str]:
    """Let three jobs fail at the beginning of the hour, wait until they are told, and return how they must be."""
    write_settings(home, {"lab": url})
    paths = HomePaths(home)
    with running(paths):
        wait_until(lambda: store.outbox_cursor() is not None)
    expected = add_failed(store, 3)
    with running(paths, now=lambda: clock.at, sleep=clock.sleep, post=send_here):
        wait_until(lambda: store.outbox_cursor() == store.last_event() and all_sent(store))
    return expected


def titles(messages: list[str]) -> list[str]:
    return [message.partition("\n")[0] for message in messages]


@pytest.mark.parametrize("listens", [True, False], ids=["answers 500", "is away"])
def test_an_hour_without_the_service_loses_and_doubles_no_message(
    home: Path, paths: HomePaths, store: Store, server: MessageServer, clock: Clock, wait_until: Wait, listens: bool
) -> None:
    server.behave = lambda: 200 if clock.over else 500
    with ExitStack() as open_for_business:
        serve: Callable[[], AbstractContextManager[object]] = server.serving
        clock.at_the_end = lambda: None if listens else open_for_business.enter_context(serve()) and None
        if listens:
            open_for_business.enter_context(serve())
        expected = endure(home, store, clock, wait_until, server.url)
    assert titles(server.accepted) == expected
    assert not any(REPEAT in message for message in server.accepted)
    # It came soon after the end, and the service was not asked without pause.
    assert clock.at <= 1000.0 + HOUR + LONGEST_BACK_OFF
    tries = len(server.titles) if listens else HOUR / LONGEST_BACK_OFF
    assert HOUR / LONGEST_BACK_OFF <= tries <= 10 * HOUR / LONGEST_BACK_OFF


def test_a_service_that_hangs_for_an_hour_gets_few_copies_and_each_says_that_it_may_be_one(
    home: Path, paths: HomePaths, store: Store, server: MessageServer, clock: Clock, wait_until: Wait
) -> None:
    let_go = threading.Event()
    server.behave = lambda: 200 if clock.over or not let_go.wait() else 503
    with server.serving():
        expected = endure(home, store, clock, wait_until, server.url + UNANSWERED)
        let_go.set()
    assert titles(server.accepted) == expected
    copies, others = server.bodies[: -len(expected)], server.bodies[-2:]
    assert [REPEAT in body for body in [*copies, server.bodies[-3]]] == [False] + [True] * len(copies)
    assert not any(REPEAT in body for body in others)
    assert len(copies) <= 20, "each may be one that people read"
    assert clock.at <= 1000.0 + HOUR + LONGEST_BACK_OFF_UNANSWERED + 1


def test_a_message_that_may_have_arrived_says_so_also_after_a_try_that_cannot_have(
    home: Path, paths: HomePaths, store: Store, server: MessageServer, clock: Clock, wait_until: Wait
) -> None:
    let_go = threading.Event()
    server.behaviours = [lambda: 503 if let_go.wait() else 0, lambda: 500]
    with server.serving():
        endure(home, store, clock, wait_until, server.url + UNANSWERED)
        let_go.set()
    assert [REPEAT in body for body in server.bodies[:4]] == [False, True, True, False]
    assert len(server.accepted) == 3


def test_a_try_in_a_process_is_over_at_its_limit(server: MessageServer) -> None:
    let_go = threading.Event()
    server.behave = lambda: 503 if let_go.wait() else 0
    with server.serving():
        # Apprise itself would wait much longer.
        answer = post(Target("lab", f"{server.url}?rto=600"), "first\nsecond", threading.Event(), limit=1.0)
        let_go.set()
    assert (answer.accepted, answer.detail, answer.arrived) == (False, "no answer within 1 s", True)
