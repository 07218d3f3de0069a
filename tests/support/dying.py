"""Runs a small job that needs two rungs and kills its controllers around each decision; for flow and fleet.

The job is a shell script, so that only Rung takes time: it is NaN without clipping, then NaN with its first lr, then
healthy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from rung.jobs.job import Attempt
from rung.jobs.model.state import JobState
from rung.runner.state.store import Store
from tests import pace

# In the second before the first step a controller can be killed between a relaunch and its first step.
SCRIPT = """
sleep 1
echo "rung| knobs lr=$1 clip=$2"
i=0
train() { while [ $i -lt $1 ]; do i=$((i+1)); echo "step $i loss 0.$((900-i))"; done; }
train 20
[ "$2" != off ] || { echo "step 21 loss nan"; exit 1; }
train 60
[ "$1" != 0.01 ] || { echo "step 61 loss nan"; exit 1; }
train 100
"""
FIELDS: dict[str, Any] = {
    "run": ["sh", "-c", SCRIPT, "job", "{lr}", "{clip}"],
    "knobs": {"lr": 0.01, "clip": "off"},
    "recovery": {"ladder": ["raise_clip", "lower_lr"], "trials": "off"},
}
RUNGS = [None, "raise_clip", "lower_lr"]
# How often each of the two moments must be hit; a kill that comes too late does not count.
WANTED = 2
PATIENCE = 120.0


KEPT = ("number", "rung", "asked", "because", "host", "residence", "skipped", "undone", "outcome", "effective", "fault")


def outline(attempts: list[Attempt]) -> list[Any]:
    """Return what must not depend on when a controller was killed."""
    return [{name: getattr(attempt, name) for name in (*KEPT, "furthest_step", "recovered")} for attempt in attempts]


def kill_around_decisions(store: Store, job: str, control: Callable[[], Any], kill: Callable[[], None]) -> Counter[str]:
    """Run a job to its end, kill a controller at each of the two moments, and return how often each was hit."""
    hits: Counter[str] = Counter()
    control()
    for number in range(2, len(RUNGS) + 1):
        for moment in ("decided", "started"):
            _wait(lambda moment=moment, number=number: (moment, number) in _events(store, job))
            kill()
            after = ("started", number) if moment == "decided" else ("ended", number)
            too_late = after in _events(store, job) or store.job(job).state is not JobState.LAUNCHING
            hits[moment] += not too_late
            control()
    _wait(lambda: store.job(job).ended)
    return hits


def _events(store: Store, job: str) -> set[tuple[str, int | None]]:
    return {(event.kind, event.attempt) for event in store.events(job)}


def _wait(condition: Callable[[], Any]) -> None:
    pace.until(condition, PATIENCE, every=0.005)


def assert_each_attempt_ran_once(store: Store, job: str) -> None:
    """Assert that every attempt was decided, started and ended once."""
    count = Counter((event.kind, event.attempt) for event in store.events(job))
    for number in range(1, len(RUNGS) + 1):
        assert [count[kind, number] for kind in ("decided", "started", "ended")] == [1, 1, 1]
