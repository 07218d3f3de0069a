"""Reads from the trials about one fault which rung won against which, and by how much, at equal steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rung.jobs.job import Attempt, Outcome, main_line
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.trial import AS_IT_IS, Trial
from rung.recovery.decide.incident import incident_after
from rung.recovery.evidence.tries import gpu_type_of, is_evidence, out_of_reach, split_at_manual_changes, took
from rung.recovery.trials.compare import compare, level


@dataclass(frozen=True)
class Entry:
    """One rung of a round, by its best candidate: lower_lr x0.1 and lower_lr x0.01 are one rung."""

    rung: str
    won: bool
    # It hit a fault.
    failed: bool
    # It hit a fault, or its loss was clearly above that of the rung that won.
    beaten: bool
    # How far its loss was above the winner's at equal steps, as a share of the winner's; None: none was seen there.
    above: float | None = None


@dataclass(frozen=True)
class Round:
    """The rungs that were tried side by side for one fault. Trials that the machine ended are left out."""

    fault: FaultKind
    gpu: str
    entries: tuple[Entry, ...]
    known_at: float | None

    @property
    def winner(self) -> Entry | None:
        return next((each for each in self.entries if each.won), None)

    @property
    def lead(self) -> float | None:
        """Return how far the next best rung was above the winner; None: no other one has a loss to compare."""
        return min((each.above for each in self.entries if not each.won and each.above is not None), default=None)


def rounds(attempts: Sequence[Attempt], here: Gpu | None = None) -> Iterator[Round]:
    """Yield the rounds of trials of a job, as far as they are decided."""
    found: dict[tuple[int, int, int], list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        if attempt.trial is not None:
            # A round that begins anew on another host has the same steps, unless another checkpoint was found.
            found[attempt.trial.about, attempt.trial.start, attempt.trial.until].append(attempt)
    for (about, _, _), tried in found.items():
        made = _round(attempts, about, tried, here)
        if made is not None:
            yield made


def _round(attempts: Sequence[Attempt], about: int, tried: Sequence[Attempt], here: Gpu | None) -> Round | None:
    before = _before(attempts, about)
    incident = incident_after(before, before[0].asked) if before else None
    if incident is None or incident.root_fault is None:
        return None
    entries = _entries(_evidence(tried, incident.proven_knobs))
    if not entries:
        return None
    return Round(incident.root_fault.kind, gpu_type_of(tried[0], here), entries, _known_at(tried))


def _before(attempts: Sequence[Attempt], about: int) -> list[Attempt]:
    """Return the job's own runs up to the one whose fault the trials are about, since a person set the knobs."""
    parts = split_at_manual_changes([each for each in main_line(attempts) if each.number <= about])
    return parts[-1] if parts and parts[-1][-1].number == about else []


def _evidence(tried: Sequence[Attempt], proven: Knobs) -> list[Attempt]:
    """Return the trials that show what their candidate does, the last one of each candidate."""
    last = {each.trial.candidate.label: each for each in tried if each.trial and _is_over(each, each.trial)}
    return [each for each in last.values() if each.rung is None or _reached_the_script(each, proven)]


def _is_over(attempt: Attempt, trial: Trial) -> bool:
    if trial.won:
        return True  # what came after its window is the job's own run
    if attempt.host_lost or attempt.outcome in (Outcome.PENDING, Outcome.CANCELLED):
        return False
    return attempt.fault is None or is_evidence(attempt.fault)


def _reached_the_script(attempt: Attempt, proven: Knobs) -> bool:
    return took([attempt], proven) is not False and not out_of_reach([attempt], proven)


def _entries(trials: Sequence[Attempt]) -> tuple[Entry, ...]:
    """Return one entry for each rung; a winner without another rung beside it shows nothing."""
    winner = next((each.trial for each in trials if each.trial and each.trial.won), None)
    found: dict[str, list[Entry]] = defaultdict(list)
    for attempt in trials:
        entry = _entry(attempt, attempt.trial, winner) if attempt.trial else None
        if entry is not None:
            found[entry.rung].append(entry)
    if winner is not None and len(found) < 2:
        return ()
    return tuple(map(_best, found.values()))


def _entry(attempt: Attempt, trial: Trial, winner: Trial | None) -> Entry | None:
    """Return what a trial shows beside the winner; None: nothing, because the round is not decided."""
    rung = trial.candidate.rung or AS_IT_IS
    if trial.won:
        return Entry(rung, won=True, failed=False, beaten=False)
    failed = attempt.fault is not None
    if winner is None:
        return Entry(rung, won=False, failed=True, beaten=True) if failed else None
    above, is_clear = _above(trial, winner)
    # If the run as it is wins, there was nothing to cure, and no rung has failed to cure it.
    beaten = winner.candidate.rung is not None and (failed or is_clear)
    return Entry(rung, won=False, failed=failed, beaten=beaten, above=None if failed else above)


def _above(trial: Trial, winner: Trial) -> tuple[float | None, bool]:
    """Return how far a loss is above the winner's over the steps that both have made, and whether that is clear."""
    until = min(trial.until, max((step for step, _ in trial.readings), default=trial.start))
    found = compare(winner.readings, trial.readings, trial.start, until)
    lowest = level(winner.readings, trial.start, until)
    if found is None or not lowest:
        return None, False
    return -found.difference / abs(lowest), found.is_lower


def _best(entries: Sequence[Entry]) -> Entry:
    """Return the best entry of a rung: one that won, else one that was not beaten, else the lowest loss."""
    return min(entries, key=lambda each: (not each.won, each.beaten, math.inf if each.above is None else each.above))


def _known_at(tried: Sequence[Attempt]) -> float | None:
    """Return when the last trial was over; one that goes on was decided before it ended."""
    times = [each.started_at if each.trial and each.trial.goes_on else each.ended_at for each in tried]
    return max((time for time in times if time is not None), default=None)
