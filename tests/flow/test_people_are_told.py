"""Tests that people are told about a whole recovery: each message once, in nobody's way, and with no token anywhere."""

import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from rung.runner.notify.batches import REPEAT
from rung.runner.state.store import Store
from tests import pace
from tests.support.dying import FIELDS
from tests.support.message_server import TOKEN, MessageServer, write_settings

SCRIPT = Path(__file__).parent / "trainings" / "regression.py"
TITLES = [
    "dying: nan_loss at step 61, raise_clip next, from scratch",
    "dying: nan_loss at step 61, lower_lr next, from scratch",
    "dying succeeded: finished; ",
]


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return MessageServer()


@pytest.fixture
def job(lab, service):
    write_settings(lab.folder / "home", {"lab": service.url})
    return lab.submit(lab.write({"name": "dying", **FIELDS, "secrets": []}, SCRIPT))


def heads(titles):
    """Return the titles without the reasons at the end of a success, which have figures in them."""
    return [title if title in TITLES else title[: len(TITLES[-1])] for title in titles]


def processes_that_show(word):
    """Return the arguments and variables of all processes that hold a word."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found += [name for name in ("cmdline", "environ") if word.encode() in (process / name).read_bytes()]
    return found


def test_a_service_that_hangs_delays_no_recovery_and_has_each_message_once_in_the_end(lab, job, service):
    let_go, store = threading.Event(), Store(lab.paths.store)
    # Requests that hung are never accepted.
    service.behave = lambda: 200 if let_go.is_set() or not let_go.wait() else 503
    with service.serving():
        controller = lab.controller()
        try:
            pace.until(lambda: service.titles and store.job(job).ended, 120)
            # It recovered twice and ended, although the service has not answered to the first message.
            assert store.job(job).state == "SUCCEEDED", store.job(job).reason
            pace.until(lambda: len(store.outbox()) == 3, 60)
            assert all(row.sent == 0 for row in store.outbox_targets().values())
            assert set(heads(service.titles)) == {TITLES[0]}
        finally:
            controller.kill()
            controller.wait()
            let_go.set()
        lab.rung("controller", "--idle-end", "0.01")
    assert heads([message.partition("\n")[0] for message in service.accepted]) == TITLES
    assert [REPEAT in message for message in service.accepted] == [True, False, False]
    assert store.outbox() == []
    store.close()


def test_a_controller_killed_between_a_send_and_its_record_repeats_that_message_and_loses_none(lab, job, service):
    running, shown = [], []

    def kill():
        shown.extend(processes_that_show(TOKEN))
        os.kill(running[-1].pid, signal.SIGKILL)
        running[-1].wait()
        return 200

    service.behaviours = [kill]
    with service.serving():
        running.append(lab.controller())
        pace.wait(running[0], 60)
        assert running[0].returncode == -signal.SIGKILL and heads(service.titles) == TITLES[:1]
        printed = lab.rung("controller", "--idle-end", "0.01")
    # The service had accepted the first message, and nobody could know it: it comes again, and says so.
    assert heads(service.titles) == [TITLES[0], *TITLES]
    assert [body.endswith(REPEAT) for body in service.bodies] == [False, True, False, False]
    assert shown == []
    assert_token_is_nowhere(lab, job, printed)


def assert_token_is_nowhere(lab, job, printed):
    home = lab.folder / "home"
    holders = [path for path in home.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert holders == [home / "notify.yaml"]
    shown = [lab.rung(*words) for words in (("history", job, "--json"), ("notify",), ("queue", "--json"))]
    assert not [text for text in [printed, *shown] if TOKEN in text]


def test_a_controller_without_jobs_stays_until_a_service_that_was_away_has_its_messages(lab, service):
    write_settings(lab.folder / "home", {"lab": service.url}, events=["failed"])
    lab.submit(lab.write({"name": "broken", "run": "false", "recovery": {"ladder": []}}, SCRIPT))
    controller = subprocess.Popen(
        ["rung", "controller", "--idle-end", "0.01"], env=lab.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    store = Store(lab.paths.store)
    try:
        pace.until(lambda: not store.jobs(active=True) and store.outbox_targets().get("lab"), 120)
        assert controller.poll() is None and len(store.outbox()) == 1
        with service.serving():
            assert pace.wait(controller, 120) == 0
        assert store.outbox() == []
        assert len(service.titles) == 1 and service.titles[0].startswith("broken needs you: unknown_exit")
    finally:
        controller.kill()
        controller.wait()
        store.close()
