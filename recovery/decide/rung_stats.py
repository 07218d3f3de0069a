"""Counts what each rung did for each fault on each GPU, from the attempts of all jobs.

Nothing is stored. A rung that did not take effect is counted as a try, but not as a failure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median_low

from rung.jobs.job import Attempt, Outcome, main_line
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import RungName, not_taken
from rung.recovery.decide.incident import Incident, incident_after
from rung.recovery.decide.treatments import climbs_ladder
from rung.recovery.monitors.learning import window_after

CPU = "cpu"
# The prior counts as much as this many runs, so that one or two lucky runs do not outweigh a diagnosis.
PRIOR_RUNS = 4
# A diagnosed rung cured 8 of 9 faults; without a diagnosis a rung is a guess, and each further one a worse guess.
DIAGNOSED, OPEN, FURTHER = 0.85, 0.5, 0.9


@dataclass(frozen=True)
class Trial:
    """The result of one rung in one job."""

    fault: FaultKind
    gpu: str
    rung: str
    took: bool
    survived: bool
    lost: int


@dataclass(frozen=True)
class Row:
    """What one rung did for one fault on one kind of GPU. `survived` counts only tries that took effect."""

    fault: FaultKind
    gpu: str
    rung: str
    tries: int
    took: int
    survived: int
    lost: int

    def describe(self) -> str:
        on = "on the CPU" if self.gpu == CPU else f"on {self.gpu}"
        return f"{self.survived} of {self.took} runs with {self.fault} {on} went on after {self.rung} here"


@dataclass(frozen=True)
class Ledger:
    rows: tuple[Row, ...] = ()

    @cached_property
    def _by_key(self) -> dict[tuple[str, str, str], Row]:
        return {(row.fault.value, row.gpu, row.rung): row for row in self.rows}

    def row(self, fault: FaultKind, gpu: str, rung: RungName) -> Row | None:
        """Return the row of a rung for this fault on this GPU; None when the rung never took effect."""
        found = self._by_key.get((fault.value, gpu, rung.value))
        return found if found and found.took else None

    def ranked(self, fault: FaultKind, gpu: str, rungs: Sequence[RungName], *, diagnosed: bool) -> list[RungName]:
        """Sort rungs, given in the order of the prior, by how likely each is to cure this fault."""

        def chance(place: int) -> float:
            prior = DIAGNOSED if diagnosed and place == 0 else OPEN * FURTHER**place
            row = self.row(fault, gpu, rungs[place])
            return expected(prior, row)

        return [rungs[place] for place in sorted(range(len(rungs)), key=lambda place: (-chance(place), place))]

    def because(self, fault: FaultKind, gpu: str, chosen: RungName, instead: RungName | None) -> str:
        """Return a comparison of the chosen rung with the one that would come first without a ledger."""
        row = self.row(fault, gpu, chosen)
        other = self.row(fault, gpu, instead) if instead not in (None, chosen) else None
        if row is None:
            return f"only {other.describe()}" if other else ""
        return f"{row.describe()}, {other.survived} of {other.took} after {other.rung}" if other else row.describe()


EMPTY = Ledger()


def expected(prior: float, row: Row | None) -> float:
    """Return the share of runs that a rung is expected to cure: the prior as PRIOR_RUNS runs, plus the runs seen."""
    survived, took = (row.survived, row.took) if row else (0, 0)
    return (PRIOR_RUNS * prior + survived) / (PRIOR_RUNS + took)


def gpu_type_of(attempt: Attempt, here: Gpu | None) -> str:
    """Return the type of GPU an attempt ran on; `here` is the GPU of this machine."""
    return gpu_type(attempt.gpus[0] if attempt.gpus else here if not attempt.is_remote else None)


def gpu_type(gpu: Gpu | None) -> str:
    return gpu.type if gpu else CPU


def read_ledger(jobs: Iterable[Sequence[Attempt]], here: Gpu | None = None) -> Ledger:
    """Return the ledger of all jobs, each given by its attempts, oldest first."""
    found: dict[tuple[str, str, str], list[Trial]] = defaultdict(list)
    for attempts in jobs:
        for trial in trials(attempts, here):
            found[trial.fault.value, trial.gpu, trial.rung].append(trial)
    return Ledger(tuple(_row(found[key]) for key in sorted(found)))


def _row(results: Sequence[Trial]) -> Row:
    first = results[0]
    survived = sum(trial.took and trial.survived for trial in results)
    took, lost = sum(trial.took for trial in results), median_low(trial.lost for trial in results)
    return Row(first.fault, first.gpu, first.rung, len(results), took, survived, lost)


def trials(attempts: Sequence[Attempt], here: Gpu | None = None) -> Iterator[Trial]:
    """Yield the result of every rung of a job whose result is known."""
    for part in _split_at_manual_changes(main_line(attempts)):
        for index, attempt in enumerate(part):
            if attempt.rung is not None:
                trial = _trial(part[:index], _attempts_with_rung(part, index), here)
                if trial is not None:
                    yield trial


def _split_at_manual_changes(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Split a job's attempts where a person changed the knobs: what was tried before does not count."""
    parts: list[list[Attempt]] = []
    for attempt in attempts:
        if attempt.by_person or not parts:
            parts.append([])
        parts[-1].append(attempt)
    return parts


def _attempts_with_rung(part: Sequence[Attempt], index: int) -> list[Attempt]:
    """Return the attempt of a rung and those that went on with the same knobs after an infra fault."""
    with_rung = [part[index]]
    for attempt in part[index + 1 :]:
        fault = with_rung[-1].fault
        goes_on = attempt.rung is None and attempt.asked == with_rung[0].asked and not attempt.stepped_back
        if not goes_on or fault is None or climbs_ladder(fault):
            break
        with_rung.append(attempt)
    return with_rung


def _trial(before: Sequence[Attempt], with_rung: Sequence[Attempt], here: Gpu | None) -> Trial | None:
    incident = incident_after(before, before[0].asked) if before else None
    if incident is None or incident.root_fault is None:
        return None
    survived = _survived(with_rung, _window(before, incident))
    if survived is None:
        return None
    first = with_rung[0]
    lost = max(0, (before[-1].furthest_step or 0) - first.resume_point)
    kind, took = incident.root_fault.kind, _took(with_rung, incident)
    return Trial(kind, gpu_type_of(first, here), first.rung or "", took, survived, lost)


def _window(before: Sequence[Attempt], incident: Incident) -> int:
    failed = next(attempt for attempt in before if attempt.number == incident.root_attempt)
    return window_after(incident.furthest_fault_step, incident.furthest_fault_step - (failed.resumed_step or 0))


def _took(with_rung: Sequence[Attempt], incident: Incident) -> bool:
    """Return whether the change took effect; a knob that the job does not report counts as set."""
    changed = with_rung[0].asked.changes_from(incident.proven_knobs)
    ignored = (not_taken(attempt.asked, attempt.effective) for attempt in with_rung)
    return not any(name in changed for names in ignored for name in names)


def _survived(with_rung: Sequence[Attempt], window: int) -> bool | None:
    """Return whether the run got past the fault; None when it is not known."""
    last = with_rung[-1]
    if last.outcome is Outcome.SUCCEEDED or any(attempt.recovered for attempt in with_rung):
        return True
    if last.fault is not None and last.fault.kind is FaultKind.NOT_LEARNING:
        return False
    if max((attempt.furthest_step or 0) for attempt in with_rung) >= window:
        return True
    return False if last.fault is not None and _is_evidence(last.fault) else None


def _is_evidence(fault: Fault) -> bool:
    """Return whether a fault is evidence about the rung; an infra fault is not."""
    return climbs_ladder(fault) or fault.kind is FaultKind.UNKNOWN_EXIT
