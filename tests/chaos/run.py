"""Runs the harness: random jobs, random faults while they run, then quiet until all has ended, then the evidence."""

from __future__ import annotations

import contextlib
import math
import random
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests import pace
from tests.chaos.evidence import Evidence
from tests.chaos.faults import Injector, random_kinds
from tests.chaos.gather import ENDED, gather
from tests.chaos.host_faults import HostInjector
from tests.chaos.invariants import Violation, violations
from tests.chaos.lab import Journal, Lab
from tests.chaos.site_faults import SiteInjector
from tests.fleet.fleet import Fleet
from tests.slurm.cluster import Cluster

# The longest time in which nothing at all happens before a job counts as stuck; on a slow machine it is longer.
PATIENCE = 180.0


@dataclass(frozen=True)
class Result:
    evidence: Evidence
    found: list[Violation]
    journal: Journal
    seconds: float


@dataclass(frozen=True)
class Wanted:
    """A run as a person asks for it: it ends after so many faults, or so many seconds.

    With a fleet the jobs run in containers on its hosts, with a cluster as its batch jobs, else as processes here.
    """

    seed: int
    faults: int
    seconds: float | None = None
    place: Fleet | Cluster | None = None


def run(folder: Path, wanted: Wanted, *, keep: bool = True) -> Result:
    """Run, and keep the files where that is asked, or needed."""
    begun = time.monotonic()
    lab = Lab(folder, wanted.seed, wanted.faults, wanted.place)
    found: list[Violation] = [Violation("the run did not come to its end")]
    try:
        _disturb(lab, wanted, begun)
        settle(lab)
        evidence = gather(lab)
        found = violations(evidence)
    finally:
        lab.close(keep=keep or bool(found))
    return Result(evidence, found, lab.journal, time.monotonic() - begun)


def _disturb(lab: Lab, wanted: Wanted, begun: float) -> None:
    chance, until = random.Random(f"{wanted.seed} faults"), begun + (wanted.seconds or math.inf)
    targets = random.Random(f"{wanted.seed} targets")
    injector = _injector(lab, targets, wanted.place)
    kind = random_kinds(chance, injector.kinds())
    try:
        while lab.journal.faults.total() < wanted.faults and time.monotonic() < until:
            _keep_jobs_coming(lab)
            injector.inject(kind())
            injector.pause(injector.longest_pause)
    finally:
        injector.end_all()


def _injector(lab: Lab, targets: random.Random, place: Fleet | Cluster | None) -> Injector:
    if isinstance(place, Fleet):
        return HostInjector(lab, targets, fleet=place)
    return SiteInjector(lab, targets, cluster=place) if place is not None else Injector(lab, targets)


def _keep_jobs_coming(lab: Lab) -> None:
    lab.reap()
    coming = sum(command.code is None and command.words[0] == "launch" for command in lab.journal.commands)
    active = sum(state not in ENDED for state in lab.states().values())
    # The store may be locked or full, so there is a bound that does not depend on it.
    if active + coming < lab.runs.jobs_at_once and coming < 2:
        lab.launch()


def settle(lab: Lab) -> None:
    """Let everything come to its end, with a controller that nobody disturbs."""
    patience = pace.Patience(PATIENCE, lab.progress)
    while lab.reap() and not patience.is_over():
        lab.attend()
        time.sleep(0.05)
    lab.journal.unsettled += [f"rung {' '.join(each.words)}" for each in lab.journal.commands if each.code is None]
    lab.attend()
    # The last one would take its place if it were quicker, and then that one has to refuse.
    with contextlib.suppress(AssertionError):
        pace.until(lab.is_attended, PATIENCE)
    last = lab.start_controller("--until-idle")
    with contextlib.suppress(subprocess.TimeoutExpired, AssertionError):
        pace.until(lambda: last.poll() is not None or patience.is_over(), 24 * 3600.0, every=0.1)
    if last.poll() is None:
        last.kill()
    last.wait()
    lab.journal.unsettled += [f"{job} is {state}" for job, state in sorted(lab.states().items()) if state not in ENDED]
    _stop(lab)
    _tidy(lab)


def _tidy(lab: Lab) -> None:
    """Let a new controller remove what earlier ones could not, from hosts that were away."""

    def is_over() -> bool:
        return lab.runs.all_is_over() and not lab.given_up()

    if is_over():
        return
    lab.controller = lab.start_controller()
    with contextlib.suppress(AssertionError):
        pace.until(is_over, PATIENCE, every=0.5)
    _stop(lab)


def _stop(lab: Lab) -> None:
    """Stop the controller as a person would."""
    if lab.controller is not None and lab.controller.poll() is None:
        lab.controller.terminate()
        pace.wait(lab.controller, PATIENCE)
    elif lab.controller is not None:
        lab.note_end(lab.controller)
