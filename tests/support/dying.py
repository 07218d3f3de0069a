"""A small job with two rungs to climb, whose controllers are killed around each decision; for flow and fleet.

The job is a shell script, so that only Rung takes time: NaN without clipping, later NaN with its own lr, then well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from rung.jobs.job import Attempt
from rung.jobs.model.state import JobState
from rung.runner.state.store import Store
from tests import pace

# The wait before the first step is the time in which a controller can die between a relaunch and its first step.
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
    "recovery": {"ladder": ["raise_clip", "lower_lr"]},
}
RUNGS = [None, "raise_clip", "lower_lr"]
# Each of the two moments is hit at least so often; a controller that was quicker than we are does not count.
WANTED = 2
PATIENCE = 120.0


KEPT = ("number", "rung", "asked", "because", "host", "residence", "skipped", "undone", "outcome", "effective", "fault")


def outline(attempts: list[Attempt]) -> list[Any]:
    """Return what must not depend on when a controller was killed."""
    return [{name: getattr(attempt, name) for name in (*KEPT, "furthest_step", "recovered")} for attempt in attempts]


def kill_around_decisions(store: Store, job: str, control: Callable[[], Any], kill: Callable[[], None]) -> Counter[str]:
    """Let controllers lead a job to its end, each killed at one of the two moments; return how often each was hit."""
    hits: Counter[str] = Counter()
    control()
    for number in range(2, len(RUNGS) + 1):
        for moment in ("decided", "started"):
            _wait(lambda moment=moment, number=number: (moment, number) in _told(store, job))
            kill()
            after = ("started", number) if moment == "decided" else ("ended", number)
            too_late = after in _told(store, job) or store.job(job).state is not JobState.LAUNCHING
            hits[moment] += not too_late
            control()
    _wait(lambda: store.job(job).ended)
    return hits


def _told(store: Store, job: str) -> set[tuple[str, int | None]]:
    return {(event.kind, event.attempt) for event in store.events(job)}


def _wait(condition: Callable[[], Any]) -> None:
    pace.until(condition, PATIENCE, every=0.005)


def once(store: Store, job: str) -> None:
    """Every attempt was decided, started and ended once."""
    told = Counter((event.kind, event.attempt) for event in store.events(job))
    for number in range(1, len(RUNGS) + 1):
        assert [told[kind, number] for kind in ("decided", "started", "ended")] == [1, 1, 1]
