"""Counts what happened to one job, from its attempts and events: the part of every counter that it brings. Pure.

Events are only added and rows stay when `rung rm` removes a job, so what is counted here never falls. A step counts as
lost only when that is settled: an attempt that runs may still say that it resumed elsewhere, and a trial may win.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rung.jobs.job import Outcome, Verdict
from rung.jobs.model.event import EventKind
from rung.jobs.model.state import ENDED

# The upper bounds of the histogram in seconds. A relaunch with verified checkpoints takes seconds, one that waits for a
# host or backs off takes minutes.
RELAUNCH_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
# The label of a relaunch without a fault, such as a step back, or without a rung, which has the same knobs.
NONE = "none"

# The name of a count and its labels.
Key = tuple[str, ...]
Counts = Counter[Key]


@dataclass(frozen=True)
class AttemptFacts:
    """What is counted of one attempt."""

    number: int
    outcome: str
    rung: str | None
    by_person: bool
    ended_by: str | None
    after_fault: str | None
    fault: str | None
    furthest_step: int | None
    resumed_step: int | None
    planned_step: int | None
    first_step: int | None
    # Whether it is a trial, has won, and became the job's own run.
    trial: bool
    won: bool
    goes_on: bool

    @property
    def is_trial(self) -> bool:
        return self.trial and not self.goes_on

    @property
    def resume_point(self) -> int:
        return self.resumed_step if self.resumed_step is not None else self.planned_step or 0

    @property
    def settled(self) -> bool:
        """Tell whether it can no longer say that it resumed elsewhere."""
        return self.resumed_step is not None or self.first_step is not None or self.outcome != Outcome.PENDING


@dataclass(frozen=True)
class EventFacts:
    """What is counted of one event; `to` is the state that a job came into."""

    at: float
    kind: str
    attempt: int | None
    to: str | None


# The events that are counted. Others need not be read.
COUNTED_EVENTS = (
    EventKind.FAULT,
    EventKind.INTERRUPTED,
    EventKind.STARTED,
    EventKind.STATE,
    EventKind.RETRIED,
    EventKind.SURVIVED,
    EventKind.RECOVERED,
    EventKind.NOT_LEARNING,
)


def count_job(attempts: Sequence[AttemptFacts], events: Sequence[EventFacts]) -> Counts:
    """Return the counts of a job; both in the order in which they came."""
    found: Counts = Counter()
    interrupted = False
    for attempt in attempts:
        if attempt.trial:
            found["trials", attempt.rung or NONE] += 1
            found["trials_won", attempt.rung or NONE] += attempt.won
        if not attempt.is_trial:
            # A run that goes on after an interruption has not recovered from anything.
            if not attempt.by_person and not interrupted:
                found["recoveries", attempt.after_fault or NONE, attempt.rung or NONE] += 1
            interrupted = attempt.outcome == Outcome.INTERRUPTED
        if attempt.fault and not attempt.is_trial:
            found["faults", attempt.fault] += 1
    found[("steps_lost",)] += _steps_lost(attempts, ended=_has_ended(events))
    trials = {attempt.number for attempt in attempts if attempt.is_trial}
    found.update(_count_events(events, {attempt.number: attempt.ended_by or NONE for attempt in attempts}))
    for seconds in _relaunch_seconds(events, trials):
        found["relaunch", str(bisect_left(RELAUNCH_BOUNDS, seconds))] += 1
        # In whole milliseconds, so that a sum over jobs does not depend on their order.
        found[("relaunch_ms",)] += round(1000 * seconds)
    return +found


def _count_events(events: Sequence[EventFacts], ended_by: Mapping[int, str]) -> Counts:
    verdicts, ended = {verdict.value for verdict in Verdict}, {state.value for state in ENDED}
    found: Counts = Counter()
    for event in events:
        if event.kind == EventKind.STARTED:
            found[("launches",)] += 1
        elif event.kind == EventKind.INTERRUPTED:
            found["interruptions", ended_by.get(event.attempt or 0, NONE)] += 1
        elif event.kind in verdicts:
            found["verdicts", event.kind] += 1
        elif event.to in ended:
            found["ended", event.to or ""] += 1
    return found


def _has_ended(events: Sequence[EventFacts]) -> bool:
    states = [event.to for event in events if event.to]
    return bool(states) and states[-1] in {state.value for state in ENDED}


def _steps_lost(attempts: Sequence[AttemptFacts], *, ended: bool) -> int:
    """Return how many steps were made again, as the history counts them, where that is settled."""
    lost = 0
    for index, attempt in enumerate(attempts):
        later = attempts[index + 1 :]
        after = next((each for each in later if not each.is_trial), None)
        if attempt.is_trial and not attempt.won:
            # Whether it wins is written with the decision for the next run.
            if ended or after is not None:
                lost += max(0, (attempt.furthest_step or 0) - attempt.resume_point)
        elif after is not None and after.settled and attempt.furthest_step is not None:
            # The next run may go on from a trial that won: then all that the trial made again was lost.
            won = [each.resume_point for each in later if each.won and each.number < after.number]
            lost += max(0, attempt.furthest_step - min([after.resume_point, *won]))
    return lost


def _relaunch_seconds(events: Sequence[EventFacts], trials: set[int]) -> Iterator[float]:
    """Yield the time from each fault of the job's own runs to the next launch that Rung began itself."""
    since: float | None = None
    for event in events:
        if event.kind == EventKind.FAULT and event.attempt not in trials:
            since = event.at if since is None else since
        elif event.kind == EventKind.RETRIED:
            since = None
        elif event.kind == EventKind.STARTED and since is not None:
            # Somebody may have set the clock back meanwhile.
            yield max(0.0, event.at - since)
            since = None
