"""Tests that every message arrives once, through a real service that fails, hangs or is away, and over restarts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.event import EventKind
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.notify.batches import REPEAT
from rung.runner.notify.collect import begin
from rung.runner.notify.notifier import Notifier
from rung.runner.notify.post import post, without_tokens
from rung.runner.notify.settings import Target
from rung.runner.state.outbox_rows import MOST_WAITING
from rung.runner.state.store import Store
from tests.support.message_server import TOKEN, MessageServer, status, write_settings

Wait = Callable[..., Any]


@contextmanager
def running(paths: HomePaths, **options: Any) -> Iterator[Notifier]:
    notifier = Notifier(paths, {}, **options)
    notifier.start()
    try:
        yield notifier
    finally:
        notifier.close()


def add_failed(store: Store, count: int = 1, at: float = 1000.0, name: str = "job") -> list[str]:
    """Add jobs that failed; return the first lines that they are told by."""
    names = []
    with store.transaction():
        for _ in range(count):
            spec = JobSpec(name=f"{name}{len(store.jobs()) if count < 50 else ''}", run=("true",))
            job = store.add_job(spec, Path("/"), at=at)
            store.move(job.id, JobState.FAILED, reason="no GPU", at=at)
            names.append(f"{spec.name} needs you: no GPU")
    return names


@pytest.fixture
def told(home: Path, service: MessageServer, paths: HomePaths, store: Store) -> HomePaths:
    """Return a home in which the service is told about everything that happens from now on."""
    write_settings(home, {"lab": service.url})
    begin(store)
    return paths


def all_sent(store: Store) -> bool:
    # In this order: messages and cursor are written together, between two looks.
    return store.outbox_cursor() == store.last_event() and store.outbox() == []


def test_each_event_is_one_message_also_over_restarts(
    told: HomePaths, service: MessageServer, store: Store, wait_until: Wait
) -> None:
    expected = add_failed(store, 2)
    with running(told):
        wait_until(lambda: all_sent(store))
    expected += add_failed(store)
    with running(told):
        wait_until(lambda: all_sent(store))
    with running(told) as notifier:
        notifier.settle(store, 10.0)
    assert service.titles == expected
    assert service.bodies[0] == "job job0-1; see: rung history job0-1"
    row = store.outbox_targets()["lab"]
    assert (row.sent, row.error) == (3, None)


def test_what_happened_before_anybody_was_to_be_told_is_not_told(
    home: Path, paths: HomePaths, service: MessageServer, store: Store, wait_until: Wait
) -> None:
    add_failed(store)
    file = write_settings(home, {"lab": service.url})
    with running(paths):
        wait_until(lambda: store.outbox_cursor() is not None)
        file.unlink()
        wait_until(lambda: store.outbox_cursor() is None)
        add_failed(store, name="unheard")
        write_settings(home, {"lab": service.url})
        wait_until(lambda: store.outbox_cursor() == store.last_event())
        expected = add_failed(store, name="heard")
        wait_until(lambda: service.titles and all_sent(store))
    assert service.titles == expected


def test_a_service_that_answers_500_gets_the_message_again_and_once_in_the_end(
    told: HomePaths, service: MessageServer, store: Store, wait_until: Wait
) -> None:
    service.behaviours = [status(500), status(503)]
    expected = add_failed(store)
    with running(told):
        wait_until(lambda: (row := store.outbox_targets().get("lab")) and row.error)
        error = store.outbox_targets()["lab"].error or ""
        wait_until(lambda: all_sent(store))
    assert "error=50" in error and TOKEN not in error
    assert service.titles == expected * 3
    # It was told apart from a send whose end is not known.
    assert not any(REPEAT in body for body in service.bodies)
    assert store.outbox_targets()["lab"].error is None


def test_a_service_that_hangs_is_cut_off_and_the_next_try_says_that_it_may_be_a_repeat(
    told: HomePaths, service: MessageServer, store: Store, wait_until: Wait
) -> None:
    let_go = threading.Event()
    service.behaviours = [lambda: 200 if let_go.wait() else 0]
    expected, limits = add_failed(store), [1.0]

    def impatient(target: Any, text: str, closing: threading.Event) -> Any:
        # A try that nobody hears, because its process starts slowly, counts for nothing here: the next may take longer.
        limits.append(2 * limits[-1])
        return post(target, text, closing, limit=60.0 if service.titles else limits[-1])

    with running(told, post=impatient, sleep=lambda seconds: None):
        wait_until(lambda: store.outbox_cursor() == store.last_event() and all_sent(store))
    let_go.set()
    assert service.titles == expected * 2
    assert service.bodies[-1].endswith(REPEAT)


def test_a_service_that_takes_a_message_and_does_not_answer_may_have_it(service: MessageServer) -> None:
    let_go = threading.Event()
    service.behaviours = [lambda: 200 if let_go.wait() else 0]
    # Apprise gives up by itself here: `rto` is its limit for an answer.
    answer = post(Target("lab", f"{service.url}?rto=0.2"), "first line\nsecond line", threading.Event())
    let_go.set()
    assert (answer.accepted, answer.arrived, service.titles) == (False, True, ["first line"])
    refused = post(Target("lab", f"json://127.0.0.1:1/{TOKEN}"), "first line", threading.Event())
    assert (refused.accepted, refused.arrived) == (False, False)


def test_a_service_that_hangs_is_in_the_way_of_no_other_one(
    told: HomePaths, home: Path, service: MessageServer, store: Store, wait_until: Wait
) -> None:
    let_go = threading.Event()
    with MessageServer().serving() as other:
        write_settings(home, {"hangs": service.url, "lab": other.url})
        service.behaviours = [lambda: 200 if let_go.wait() else 0] * 10
        expected = add_failed(store)
        with running(told):
            wait_until(lambda: other.titles == expected and service.titles)
            assert len(store.outbox("hangs")) == 1
            let_go.set()
            wait_until(lambda: all_sent(store))


def test_what_waits_while_a_service_is_away_comes_as_one_digest(
    home: Path, paths: HomePaths, store: Store, wait_until: Wait
) -> None:
    server = MessageServer()  # its port is taken, and nobody answers there
    write_settings(home, {"lab": server.url})
    extra = 7
    with running(paths):
        wait_until(lambda: store.outbox_cursor() is not None)
        add_failed(store, MOST_WAITING + extra)
        wait_until(lambda: store.outbox_cursor() == store.last_event())
    assert len(store.outbox()) == MOST_WAITING and server.titles == []
    with server.serving(), running(paths):
        wait_until(lambda: all_sent(store))
    assert server.titles == [f"Rung: {MOST_WAITING} messages: {MOST_WAITING} need you, and {extra} older ones"]
    assert store.outbox_targets()["lab"].left_out == 0


def test_a_connection_that_is_refused_is_an_error_without_the_token(
    home: Path, paths: HomePaths, store: Store, wait_until: Wait
) -> None:
    write_settings(home, {"lab": f"json://127.0.0.1:1/{TOKEN}"})
    with running(paths):
        wait_until(lambda: store.outbox_cursor() is not None)
        add_failed(store)
        wait_until(lambda: (row := store.outbox_targets().get("lab")) and row.error)
    error = store.outbox_targets()["lab"].error or ""
    assert "127.0.0.1" in error and TOKEN not in error
    (row,) = store.outbox()
    assert row.begun_at is None


def test_in_quiet_hours_nothing_comes_and_afterwards_one_message(
    told: HomePaths, home: Path, service: MessageServer, store: Store, wait_until: Wait
) -> None:
    from tests.runner.notify.test_batches import at

    write_settings(home, {"lab": service.url}, quiet="22:00-07:00", passes_quiet="host_lost")
    clock = [at("23:00")]
    add_failed(store, 2, at=clock[0])
    with running(told, now=lambda: clock[0]) as notifier:
        wait_until(lambda: store.outbox_cursor() == store.last_event())
        assert notifier.unsent(store) == 2
        notifier.settle(store, 60.0)
        assert service.titles == []
        clock[0] = at("07:00", 11)
        wait_until(lambda: all_sent(store))
    assert service.titles == ["Rung: 2 messages: 2 need you"]


def test_a_message_whose_reason_is_gone_before_it_is_due_is_taken_back(
    told: HomePaths, service: MessageServer, store: Store, wait_until: Wait
) -> None:
    clock = [1000.0]
    with store.transaction():
        job = store.add_job(JobSpec(name="away", run=("true",)), Path("/"), at=1.0)
        store.add_event(job.id, 1, EventKind.UNREACHABLE, {"because": ""}, at=1000.0)
    with running(told, now=lambda: clock[0]):
        wait_until(lambda: len(store.outbox()) == 2)
        with store.transaction():
            store.add_event(job.id, 1, EventKind.REACHABLE, {"because": "titan answers again"}, at=1010.0)
        wait_until(lambda: all_sent(store))
        clock[0] = 99_999.0
    assert service.titles == []


def test_an_event_that_nobody_understands_holds_nothing_back(
    told: HomePaths, service: MessageServer, store: Store, wait_until: Wait
) -> None:
    with store.transaction():
        job = store.add_job(JobSpec(name="odd", run=("true",)), Path("/"), at=1.0)
        store.add_event(job.id, 1, EventKind.STATE, {"of": "another version"}, at=1.0)
    expected = add_failed(store)
    with running(told):
        wait_until(lambda: all_sent(store))
    assert service.titles == expected


def test_a_wrong_file_is_said_once_and_holds_messages_back_until_it_is_right(
    told: HomePaths, home: Path, service: MessageServer, store: Store, wait_until: Wait, capsys: Any
) -> None:
    write_settings(home, {"lab": service.url}, quiet="at night")
    expected = add_failed(store)
    said: list[str] = []
    with running(told) as notifier:
        wait_until(lambda: said.append(capsys.readouterr().err) or "".join(said))
        assert notifier.unsent(store) == 0
        notifier.settle(store, 60.0)
        write_settings(home, {"lab": service.url})
        wait_until(lambda: service.titles and all_sent(store))
    (line,) = "".join([*said, capsys.readouterr().err]).splitlines()
    assert line == f'rung: nobody is told: {told.notify}:1: quiet: write it as "22:00-07:00"'
    assert service.titles == expected


@pytest.mark.parametrize(
    ("url", "said", "shown"),
    [
        (f"json://u:{TOKEN}@127.0.0.1:80/a", f"to 127.0.0.1 as {TOKEN}", "to 127.0.0.1 as ***"),
        (
            f"slack://{TOKEN}/Tok3nB/x",
            f"Slack: no host {TOKEN.upper()} for tok3nb\x1b[2J",
            "Slack: no host *** for ***",
        ),
        ("json://h/a%20secret", "no such page: /a secret", "no such page: /a ***"),
    ],
)
def test_what_a_service_says_is_shown_without_any_part_of_its_url(url: str, said: str, shown: str) -> None:
    assert without_tokens(said, Target("lab", url)) == shown


def test_a_file_that_was_away_while_no_controller_ran_begins_anew(
    told: HomePaths, service: MessageServer, store: Store, wait_until: Wait
) -> None:
    add_failed(store, name="unheard")
    settings = told.notify.read_text(encoding="utf-8")
    told.notify.unlink()
    with running(told):
        assert store.outbox_cursor() is None
        told.notify.touch(mode=0o600)
        told.notify.write_text(settings, encoding="utf-8")
        wait_until(lambda: store.outbox_cursor() == store.last_event())
    assert store.outbox() == [] and service.titles == []
