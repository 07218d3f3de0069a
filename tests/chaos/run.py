"""Runs the harness: random jobs, random faults while they run, then quiet until all has ended, then the evidence."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests import pace
from tests.chaos.evidence import Evidence
from tests.chaos.faults import Injector, random_kinds
from tests.chaos.gather import ENDED, gather
from tests.chaos.invariants import Violation, violations
from tests.chaos.lab import Journal, Lab

# So many jobs are under way while faults are injected.
JOBS_AT_ONCE = 8
# The longest time between two faults, in seconds.
LONGEST_PAUSE = 0.8
# The longest time in which nothing at all happens before a job counts as stuck; on a slow machine it is longer.
PATIENCE = 180.0


@dataclass(frozen=True)
class Result:
    evidence: Evidence
    found: list[Violation]
    journal: Journal
    seconds: float


def run(folder: Path, seed: int, faults: int, seconds: float | None = None, *, keep: bool = True) -> Result:
    """Run until so many faults were injected, or so many seconds have passed; keep the files where asked, or needed."""
    begun = time.monotonic()
    lab = Lab(folder, seed, faults)
    found: list[Violation] = [Violation("the run did not come to its end")]
    try:
        _disturb(lab, seed, faults, begun + seconds if seconds is not None else None)
        settle(lab)
        evidence = gather(lab)
        found = violations(evidence)
    finally:
        lab.close(keep=keep or bool(found))
    return Result(evidence, found, lab.journal, time.monotonic() - begun)


def _disturb(lab: Lab, seed: int, faults: int, until: float | None) -> None:
    chance = random.Random(f"{seed} faults")
    injector, kind = Injector(lab, random.Random(f"{seed} targets")), random_kinds(chance)
    try:
        while lab.journal.faults.total() < faults and (until is None or time.monotonic() < until):
            _keep_jobs_coming(lab)
            injector.inject(kind())
            injector.pause(LONGEST_PAUSE)
    finally:
        injector.end_all()


def _keep_jobs_coming(lab: Lab) -> None:
    lab.reap()
    coming = sum(command.code is None and command.words[0] == "launch" for command in lab.journal.commands)
    active = sum(state not in ENDED for state in lab.states().values())
    # The store may be locked or full, so there is a bound that does not depend on it.
    if active + coming < JOBS_AT_ONCE and coming < 2:
        lab.launch()


def settle(lab: Lab) -> None:
    """Let everything come to its end, with a controller that nobody disturbs."""
    patience = pace.Patience(PATIENCE, lab.progress)
    while lab.reap() and not patience.is_over():
        lab.attend()
        time.sleep(0.05)
    lab.journal.unsettled += [f"rung {' '.join(each.words)}" for each in lab.journal.commands if each.code is None]
    lab.attend()
    last = lab.start_controller("--until-idle")
    with contextlib.suppress(subprocess.TimeoutExpired, AssertionError):
        pace.until(lambda: last.poll() is not None or patience.is_over(), 24 * 3600.0, every=0.1)
    if last.poll() is None:
        last.kill()
    last.wait()
    lab.journal.unsettled += [f"{job} is {state}" for job, state in sorted(lab.states().items()) if state not in ENDED]
    _stop(lab)


def _stop(lab: Lab) -> None:
    """Stop the controller as a person would."""
    if lab.controller is not None and lab.controller.poll() is None:
        lab.controller.terminate()
        pace.wait(lab.controller, PATIENCE)
    elif lab.controller is not None:
        lab.note_end(lab.controller)
