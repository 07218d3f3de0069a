"""The faults: each does one thing to a running lab, and says whether there was anything to do it to.

A clock that is set is not among them: no namespace gives one process another time of day.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tests import pace
from tests.chaos.evidence import JOB_KILLED, WRAPPER_KILLED
from tests.chaos.lab import Lab, exclusive
from tests.chaos.process_jobs import Live

PATIENCE = 120.0
# So many commands of people run at once.
MOST_COMMANDS = 4
LOOKS = (("queue", "--json"), ("queue",), ("history",), ("logs",), ("checkpoints",), ("report",))


@dataclass
class Injector:
    """Injects faults. Those that last end by themselves after a while: `tick` sees to it."""

    # The longest wait for something that a fault can happen to, and between two faults, in seconds on a fast machine.
    longest_wait: ClassVar[float] = 3.0
    longest_pause: ClassVar[float] = 0.8

    lab: Lab
    chance: random.Random
    _ends: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    # A controller that was killed is started again at this time.
    _start_at: float = 0.0
    _locked: bool = False
    _full: bool = False

    def kinds(self) -> Kinds:
        """Return the kinds of faults, each with how often it comes."""
        return KINDS

    def tick(self) -> None:
        """End the faults that have lasted long enough, and have a controller."""
        due = [each for each in self._ends if each[0] <= time.monotonic()]
        for each in due:
            self._ends.remove(each)
            each[1]()
        if time.monotonic() >= self._start_at:
            self.lab.attend()
        self.lab.is_attended()
        self.lab.reap()

    def pause(self, longest: float) -> None:
        """Let a random time pass, longer on a slow machine, so that as much happens meanwhile."""
        until = time.monotonic() + self.chance.uniform(0, longest) * max(self.lab.slowness, 1.0)
        self.tick_until(lambda: time.monotonic() >= until)

    def tick_until(self, condition: Callable[[], object]) -> bool:
        """Let time pass until something is so; False: it was not so for long."""
        until = time.monotonic() + self.longest_wait * max(self.lab.slowness, 1.0)
        while not condition():
            if time.monotonic() > until:
                return False
            self.tick()
            time.sleep(0.02)
        return True

    def end_all(self) -> None:
        while self._ends:
            self._ends.pop(0)[1]()
        self._start_at = 0.0

    def inject(self, kind: str) -> bool:
        """Inject a fault of this kind, and count it; False: there was nothing that it could happen to."""
        done = bool(self.kinds()[kind][1](self))
        self.lab.journal.faults[kind] += done
        self.lab.note(kind if done else f"{kind}: nothing to do it to")
        return done

    def _last(self, seconds: float, end: Callable[[], object]) -> None:
        self._ends.append((time.monotonic() + seconds, end))

    # The controller

    def _wait_for_controller(self) -> None:
        """In most cases wait until the controller has begun, and a little: else it would mostly die before it works."""
        if self.chance.random() < 0.8 and self.tick_until(self.lab.is_attended):
            self.pause(1.0)

    def kill_controller(self) -> bool:
        self._wait_for_controller()
        killed = self.lab.kill_controller()
        self._start_at = time.monotonic() + self.chance.choice((0.0, 0.0, self.chance.uniform(0, 2)))
        return killed

    def stop_controller(self) -> bool:
        """Freeze the controller for a while, as a machine does that is suspended."""
        self._wait_for_controller()
        controller = self.lab.controller
        if controller is None or controller.poll() is not None:
            return False
        controller.send_signal(signal.SIGSTOP)
        self._last(self.chance.uniform(0.1, 4), lambda: controller.send_signal(signal.SIGCONT))
        return True

    def start_two_controllers(self) -> bool:
        """Start two at once in place of the one that runs: one of them must refuse."""
        self._wait_for_controller()
        self.lab.kill_controller()
        both = [self.lab.start_controller(), self.lab.start_controller()]
        with contextlib.suppress(AssertionError):
            pace.until(lambda: any(each.poll() is not None for each in both), PATIENCE)
        ended = [each for each in both if each.poll() is not None]
        if not ended:
            self.lab.journal.controllers.append("two controllers run at once")
            both[1].kill()
            both[1].wait()
        for each in ended:
            if "already running" not in Path(each.log).read_text(errors="replace"):  # type: ignore[attr-defined]
                self.lab.note_end(each)
        self.lab.controller = next((each for each in both if each.poll() is None), None)
        return True

    # The machine

    def fill_disk(self) -> bool:
        if not self.lab.can_be_full or self._full:
            return False
        filler, begun = self.lab.home / "filler", time.time()
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(b"\0" * (1 << 20)):
                pass

        def empty() -> None:
            filler.unlink()
            self._full = False
            self.lab.journal.full.append((begun, time.time()))

        self._full = True
        self._last(self.chance.uniform(0.2, 3), empty)
        return True

    def lock_store(self) -> bool:
        """Lock the store, sometimes for longer than anybody waits for it."""
        if self._locked or not self.lab.store.exists():
            return False
        held = contextlib.ExitStack()
        try:
            held.enter_context(exclusive(self.lab.store))
        except sqlite3.Error:
            return False

        def release() -> None:
            held.close()
            self._locked = False

        self._locked = True
        self._last(self.chance.choice((self.chance.uniform(0.1, 3), self.chance.uniform(8, 13))), release)
        return True

    # The jobs

    def _target(self, fits: Callable[[Live], bool] = lambda live: True) -> Live | None:
        """Wait until an attempt runs that fits, and return a random one of them."""
        found: list[Live] = []

        def look() -> bool:
            found[:] = filter(fits, self.lab.runs.live())
            return bool(found)

        return self.chance.choice(found) if self.tick_until(look) else None

    def kill_job(self) -> bool:
        return self._kill(JOB_KILLED, self.lab.runs.kill_job)

    def kill_wrapper(self) -> bool:
        return self._kill(WRAPPER_KILLED, self.lab.runs.kill_wrapper)

    def _kill(self, kind: str, kill: Callable[[Live], bool]) -> bool:
        target = self._target()
        if target is None or not kill(target):
            return False
        self.lab.journal.mark(target.job_id, target.attempt, kind)
        self.lab.note(f"{kind} {target}")
        return True

    def damage(self, how: str) -> bool:
        target = self._target(self.lab.runs.has_checkpoint)
        damaged = self.lab.runs.damage(target, how, self.chance) if target else None
        if target is None or damaged is None:
            return False
        name, in_time = damaged
        self.lab.note(f"{how} {name} of {target}" + ("" if in_time else ", too late to tell"))
        if not in_time:
            self.lab.journal.damaged_late.setdefault(target.job_id, target.attempt + 1)
        return True

    def garble_log(self) -> bool:
        target = self._target()
        noise = bytes(self.chance.choice([0, 27, *range(128, 256)]) for _ in range(60))
        line = b"garbage %d " % len(self.lab.journal.garbage) + noise + b"\n"
        if target is None or not self.lab.runs.append_to_log(target, line):
            return False
        self.lab.journal.garbage.add(self.lab.runs.as_logged(line))
        return True

    # People

    def _job_in(self, *states: str) -> str | None:
        found = sorted(job for job, state in self.lab.states().items() if state in states)
        return self.chance.choice(found) if found and self.lab.reap() < MOST_COMMANDS else None

    def cancel(self) -> bool:
        job = self._job_in("QUEUED", "LAUNCHING", "RUNNING", "RECOVERING", "STOPPING")
        return bool(job and self.lab.type("cancel", job, job=job))

    def retry(self) -> bool:
        job = self._job_in("FAILED", "CANCELLED")
        return bool(job and self.lab.type("retry", job, job=job))

    def look(self) -> bool:
        job, words = self._job_in(*STATES), self.chance.choice(LOOKS)
        return bool(job and self.lab.type(*words, *([] if words[0] == "queue" else [job])))

    def prune(self) -> bool:
        may = self.lab.reap() < MOST_COMMANDS
        return may and bool(self.lab.type("prune", "--older", "0s", "--keep", "1", "--yes"))

    def launch(self) -> bool:
        self.lab.launch()
        return True


STATES = ("QUEUED", "LAUNCHING", "RUNNING", "RECOVERING", "STOPPING", "SUCCEEDED", "FAILED", "CANCELLED")
# How often each kind comes, and what it does.
Kinds = Mapping[str, tuple[int, Callable[[Any], bool]]]
KINDS: Kinds = {
    "controller killed": (8, Injector.kill_controller),
    "controller stopped": (3, Injector.stop_controller),
    "two controllers": (2, Injector.start_two_controllers),
    "disk full": (3, Injector.fill_disk),
    "store locked": (3, Injector.lock_store),
    "job killed": (5, Injector.kill_job),
    "wrapper killed": (5, Injector.kill_wrapper),
    "checkpoint truncated": (3, lambda injector: injector.damage("truncated")),
    "checkpoint flipped": (3, lambda injector: injector.damage("flipped")),
    "checkpoint poisoned": (3, lambda injector: injector.damage("poisoned")),
    "garbage in a log": (3, Injector.garble_log),
    "person cancels": (2, Injector.cancel),
    "person retries": (4, Injector.retry),
    "person looks": (3, Injector.look),
    "person prunes": (2, Injector.prune),
    "person launches": (1, Injector.launch),
}


def random_kinds(chance: random.Random, kinds: Kinds) -> Callable[[], str]:
    """Return a function that returns the kind of the next fault."""
    return lambda: chance.choices(list(kinds), [weight for weight, _ in kinds.values()])[0]
