"""Tests that controllers killed at each stage of a send lose no message, and that only one that says so is a repeat.

What counts is the list that the service itself keeps.
"""

import subprocess
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.notify.batches import REPEAT
from rung.runner.notify.collect import begin
from rung.runner.state.home import make_home
from rung.runner.state.store import Store
from tests import pace
from tests.support.message_server import MessageServer, status, write_settings


class Killed:
    """A home with one service, whose controllers are killed one after the other."""

    def __init__(self, lab, service, store):
        self.lab, self.service, self.store = lab, service, store
        self.controller, self.told = None, []

    def start(self):
        """Start a controller and wait until it has sent what the one before it left."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.controller = subprocess.Popen(["rung", "controller"], env=self.lab.env, **quiet)
        self.until(lambda: not self.store.outbox())

    def fail(self, name):
        """Let a job fail; return the line that it is told by."""
        with self.store.transaction():
            job = self.store.add_job(JobSpec(name=name, run=("true",)), Path("/"), at=1.0)
            self.store.move(job.id, JobState.FAILED, reason="no GPU", at=1.0)
        self.told.append(f"{name} needs you: no GPU")
        return self.told[-1]

    def row(self, title):
        return next((row for row in self.store.outbox() if row.text.startswith(title)), None)

    def kill(self):
        self.controller.kill()
        self.controller.wait()

    def until(self, condition):
        pace.until(condition, 60, every=0.002)

    # The stages. Each returns whether a repeat is possible.

    def while_it_waits_behind_one_that_hangs(self, name):
        let_go = threading.Event()
        self.service.behaviours = [lambda: 503 if let_go.wait() else 0]
        hangs, waits = self.fail(f"{name}-hangs"), self.fail(f"{name}-waits")
        self.until(lambda: hangs in self.service.titles and self.row(waits))
        assert self.row(waits).begun_at is None
        self.kill()
        let_go.set()
        return {hangs}

    def before_the_request(self, name):
        title = self.fail(name)
        self.until(lambda: self.row(title) and self.row(title).begun_at)
        self.kill()
        return {title}

    def before_the_answer_which_is_yes(self, name):
        return self._before_the_answer(name, 200)

    def before_the_answer_which_is_no(self, name):
        return self._before_the_answer(name, 500)

    def _before_the_answer(self, name, code):
        self.service.behaviours = [lambda: self.kill() or code]
        title = self.fail(name)
        self.until(lambda: self.controller.poll() is not None and not self.service.behaviours)
        return {title}

    def after_a_yes(self, name):
        title = self.fail(name)
        self.until(lambda: any(message.startswith(title) for message in self.service.accepted))
        self.kill()
        return {title}

    def after_a_no(self, name):
        self.service.behaviours = [status(500)] * 2
        title = self.fail(name)
        self.until(lambda: (known := self.store.outbox_targets().get("lab")) and known.error)
        self.kill()
        # The second try may have begun by then.
        self.service.behaviours = []
        return {title} if self.row(title).begun_at else set()


SOME = [Killed.while_it_waits_behind_one_that_hangs, Killed.before_the_request, Killed.after_a_yes]
ALL = [*SOME, Killed.before_the_answer_which_is_yes, Killed.before_the_answer_which_is_no, Killed.after_a_no]


@pytest.fixture
def killed(lab, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    service = MessageServer()
    make_home(lab.paths)
    write_settings(lab.paths.home, {"lab": service.url})
    with closing(Store(lab.paths.store)) as store, service.serving():
        begin(store)
        made = Killed(lab, service, store)
        try:
            yield made
        finally:
            made.kill()


@pytest.mark.parametrize("stages", [SOME, pytest.param(ALL * 3, marks=pytest.mark.long)], ids=["once", "often"])
def test_controllers_killed_at_each_stage_of_a_send_lose_no_message_and_repeat_only_what_says_so(killed, stages):
    uncertain = set()
    for number, stage in enumerate(stages):
        killed.start()
        uncertain |= stage(killed, f"{stage.__name__}-{number}")
    killed.start()
    accepted = killed.service.accepted
    count = Counter(message.partition("\n")[0] for message in accepted)
    assert set(count) == set(killed.told), "none is lost, and none was made up"
    assert [title for title in killed.told if title not in uncertain and count[title] != 1] == []
    first_hand = Counter(message.partition("\n")[0] for message in accepted if REPEAT not in message)
    assert [title for title, times in first_hand.items() if times > 1] == [], "a repeat says that it may be one"
    assert max(count.values()) <= 2, "a kill costs one repeat at most"
    # After a request that was answered with yes while nobody was left to record it, there is a repeat.
    assert all(count[title] == 2 for title in killed.told if title.startswith("before_the_answer_which_is_yes"))
