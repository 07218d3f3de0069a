"""Reads from a job's own runs what came of each rung: whether its change took, and how the run then went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rung.jobs.job import Attempt, Outcome, Verdict, goes_on_after, main_line
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import SPEED_ONLY, Knobs, not_taken
from rung.recovery.decide.incident import Incident, incident_after
from rung.recovery.decide.treatments import climbs_ladder
from rung.recovery.ledger.row import gpu_type
from rung.recovery.monitors.learning import window_after


class Result(StrEnum):
    """What came of a rung. The first two and the last are those of `jobs.job.Verdict` and of a failed run."""

    SURVIVED = "survived"
    RECOVERED = "recovered"
    FELL_SHORT = "fell_short"  # not learning, or short of the `success` of its job file
    FAILED = "failed"  # the fault came again, or another one of the run itself


@dataclass(frozen=True)
class Try:
    """One rung that a job took, and what came of it."""

    fault: FaultKind
    gpu: str
    rung: str
    # None: nothing was reported from inside.
    took: bool | None
    result: Result
    lost: int
    # The job's own runs before it since a person last set the knobs, and the attempt of the rung.
    before: tuple[Attempt, ...]
    attempt: Attempt
    # When its result was known; None while the run goes on.
    known_at: float | None

    @property
    def recovered(self) -> bool | None:
        """Return whether the run recovered; None: it is not known, or it proves nothing about the rung."""
        if self.took is False or self.result is Result.SURVIVED:
            return None
        return self.result is Result.RECOVERED


def gpu_type_of(attempt: Attempt, here: Gpu | None) -> str:
    """Return the type of GPU an attempt ran on; `here` is the GPU of this machine."""
    return gpu_type(gpu_of(attempt, here))


def gpu_of(attempt: Attempt, here: Gpu | None) -> Gpu | None:
    return attempt.gpus[0] if attempt.gpus else here if not attempt.is_remote else None


def tries(attempts: Sequence[Attempt], here: Gpu | None = None) -> Iterator[Try]:
    """Yield every rung of a job whose result is known."""
    for part in split_at_manual_changes(main_line(attempts)):
        for index, attempt in enumerate(part):
            if attempt.rung is not None:
                found = _try(part[:index], _attempts_with_rung(part, index), here)
                if found is not None:
                    yield found


def split_at_manual_changes(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Split a job's attempts where a person changed the knobs: what was tried before does not count."""
    parts: list[list[Attempt]] = []
    for attempt in attempts:
        if attempt.by_person or not parts:
            parts.append([])
        parts[-1].append(attempt)
    return parts


def _attempts_with_rung(part: Sequence[Attempt], index: int) -> list[Attempt]:
    """Return the attempt of a rung and those that went on with the same knobs after an infra fault or interruption."""
    with_rung = [part[index]]
    for attempt in part[index + 1 :]:
        before = with_rung[-1]
        same = attempt.rung is None and attempt.asked == with_rung[0].asked and not attempt.stepped_back
        by_machine = before.fault is not None and not climbs_ladder(before.fault)
        if not same or not (by_machine or goes_on_after(before)):
            break
        with_rung.append(attempt)
    return with_rung


def _try(before: Sequence[Attempt], with_rung: Sequence[Attempt], here: Gpu | None) -> Try | None:
    incident = incident_after(before, before[0].asked) if before else None
    if incident is None or incident.root_fault is None or out_of_reach(with_rung, incident.proven_knobs):
        return None
    result = _result(with_rung, _window(before, incident))
    if result is None:
        return None
    first, last = with_rung[0], with_rung[-1]
    lost = max(0, (before[-1].furthest_step or 0) - first.resume_point)
    key = (incident.root_fault.kind, gpu_type_of(first, here), first.rung or "")
    return Try(*key, took(with_rung, incident.proven_knobs), result, lost, tuple(before), first, last.ended_at)


def _window(before: Sequence[Attempt], incident: Incident) -> int:
    failed = next(attempt for attempt in before if attempt.number == incident.root_attempt)
    return window_after(incident.furthest_fault_step, incident.furthest_fault_step - (failed.resumed_step or 0))


def took(with_rung: Sequence[Attempt], proven: Knobs) -> bool | None:
    """Return whether the change was seen from inside; None: at least a part of it was never reported."""
    changed, seen = _changed(with_rung, proven), _seen(with_rung)
    if any(name in changed for each in with_rung for name in not_taken(each.asked, each.effective)):
        return False
    return True if changed and changed <= set(seen) else None


def out_of_reach(with_rung: Sequence[Attempt], proven: Knobs) -> bool:
    """Return whether Rung had no hands in these attempts, so that nothing was tried that they show."""
    return any(each.hands for each in with_rung) and not _changed(with_rung, proven) & set(_seen(with_rung))


def _changed(with_rung: Sequence[Attempt], proven: Knobs) -> set[str]:
    changes = with_rung[0].asked.changes_from(proven)
    return {name for name, (_, asked) in changes.items() if asked is not None} - SPEED_ONLY


def _seen(with_rung: Sequence[Attempt]) -> Mapping[str, Any]:
    return {name: value for each in with_rung for name, value in each.effective.items()}


def _result(with_rung: Sequence[Attempt], window: int) -> Result | None:
    """Return what came of a rung; None when it is not known."""
    last = with_rung[-1]
    if _fell_short(last):
        return Result.FELL_SHORT
    if any(attempt.recovered for attempt in with_rung):
        return Result.RECOVERED
    is_past = max((attempt.furthest_step or 0) for attempt in with_rung) >= window
    if is_past or last.outcome is Outcome.SUCCEEDED or any(each.verdict is Verdict.SURVIVED for each in with_rung):
        return Result.SURVIVED
    return Result.FAILED if last.fault is not None and is_evidence(last.fault) else None


def _fell_short(last: Attempt) -> bool:
    stopped_learning = last.fault is not None and last.fault.kind is FaultKind.NOT_LEARNING
    return stopped_learning or last.outcome is Outcome.FELL_SHORT or last.verdict is Verdict.NOT_LEARNING


def is_evidence(fault: Fault) -> bool:
    """Return whether a fault is evidence about the rung; one of the machine is not."""
    return climbs_ladder(fault) or fault.kind is FaultKind.UNKNOWN_EXIT
