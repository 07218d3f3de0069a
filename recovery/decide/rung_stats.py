"""Owns the ledger: what each rung did for each fault on each GPU, read from the attempts of all jobs, and what follows.

Pure: nothing is stored for it. A rung that did not take is a try that did not take, never a rung that failed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median_low

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import RungName, not_taken
from rung.recovery.decide.checkpoint_choice import numeric
from rung.recovery.decide.incident import Incident, stand
from rung.recovery.monitors.learning import window_after

CPU = "cpu"
# The prior weighs as much as this many runs: one or two lucky ones do not overturn a diagnosis.
PRIOR_RUNS = 4
# A diagnosed rung cured 8 of 9 faults; without a diagnosis a rung is a guess, and each further one a worse guess.
DIAGNOSED, OPEN, FURTHER = 0.85, 0.5, 0.9


@dataclass(frozen=True)
class Trial:
    """What came of one rung in one job."""

    fault: FaultKind
    gpu: str
    rung: str
    took: bool
    survived: bool
    lost: int


@dataclass(frozen=True)
class Row:
    """What one rung did for one fault on one kind of GPU. `survived` counts only tries that took."""

    fault: FaultKind
    gpu: str
    rung: str
    tries: int
    took: int
    survived: int
    lost: int

    def words(self) -> str:
        on = "on the CPU" if self.gpu == CPU else f"on {self.gpu}"
        return f"{self.survived} of {self.took} runs with {self.fault} {on} went on after {self.rung} here"


@dataclass(frozen=True)
class Ledger:
    rows: tuple[Row, ...] = ()

    @cached_property
    def _by_key(self) -> dict[tuple[str, str, str], Row]:
        return {(row.fault.value, row.gpu, row.rung): row for row in self.rows}

    def row(self, fault: FaultKind, gpu: str, rung: RungName) -> Row | None:
        """Return what is known of a rung for this fault on this GPU; None where it was never seen to take."""
        found = self._by_key.get((fault.value, gpu, rung.value))
        return found if found and found.took else None

    def ranked(self, fault: FaultKind, gpu: str, rungs: Sequence[RungName], *, diagnosed: bool) -> list[RungName]:
        """Return rungs, given in the order of the prior, by how likely each is to get a run past this fault."""

        def chance(place: int) -> float:
            prior = DIAGNOSED if diagnosed and place == 0 else OPEN * FURTHER**place
            row = self.row(fault, gpu, rungs[place])
            return expected(prior, row)

        return [rungs[place] for place in sorted(range(len(rungs)), key=lambda place: (-chance(place), place))]

    def because(self, fault: FaultKind, gpu: str, chosen: RungName, instead: RungName | None) -> str:
        """Say what speaks for the chosen rung, and against the one that would come first without a ledger."""
        own = self.row(fault, gpu, chosen)
        other = self.row(fault, gpu, instead) if instead not in (None, chosen) else None
        if own is None:
            return f"only {other.words()}" if other else ""
        return f"{own.words()}, {other.survived} of {other.took} after {other.rung}" if other else own.words()


EMPTY = Ledger()


def expected(prior: float, row: Row | None) -> float:
    """Return the share of runs that a rung is expected to cure: the prior as so many runs, and the runs seen."""
    survived, took = (row.survived, row.took) if row else (0, 0)
    return (PRIOR_RUNS * prior + survived) / (PRIOR_RUNS + took)


def gpu_word(attempt: Attempt, here: Gpu | None) -> str:
    """Return the word for what an attempt ran on; `here` is the GPU of this machine."""
    return word_for(attempt.gpus[0] if attempt.gpus else here if not attempt.is_remote else None)


def word_for(gpu: Gpu | None) -> str:
    return gpu.type if gpu else CPU


def read(jobs: Iterable[Sequence[Attempt]], here: Gpu | None = None) -> Ledger:
    """Return the ledger of all jobs, each given by its attempts, oldest first."""
    found: dict[tuple[str, str, str], list[Trial]] = defaultdict(list)
    for attempts in jobs:
        for trial in trials(attempts, here):
            found[trial.fault.value, trial.gpu, trial.rung].append(trial)
    return Ledger(tuple(_row(found[key]) for key in sorted(found)))


def _row(of: Sequence[Trial]) -> Row:
    first = of[0]
    survived = sum(trial.took and trial.survived for trial in of)
    took = sum(trial.took for trial in of)
    return Row(first.fault, first.gpu, first.rung, len(of), took, survived, median_low(trial.lost for trial in of))


def trials(attempts: Sequence[Attempt], here: Gpu | None = None) -> Iterator[Trial]:
    """Yield what came of every rung of a job whose end is known."""
    for stretch in _stretches(attempts):
        for index, attempt in enumerate(stretch):
            if attempt.rung is not None:
                trial = _trial(stretch[:index], _course(stretch, index), here)
                if trial is not None:
                    yield trial


def _stretches(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Part a job's attempts where a person set the knobs anew: what was tried before has no bearing on it."""
    parts: list[list[Attempt]] = []
    for attempt in attempts:
        if attempt.by_person or not parts:
            parts.append([])
        parts[-1].append(attempt)
    return parts


def _course(stretch: Sequence[Attempt], index: int) -> list[Attempt]:
    """Return the attempt of a rung and those that went on with the very same knobs after a fault of the machine."""
    course = [stretch[index]]
    for attempt in stretch[index + 1 :]:
        fault = course[-1].fault
        goes_on = attempt.rung is None and attempt.asked == course[0].asked and not attempt.stepped_back
        if not goes_on or fault is None or numeric(fault):
            break
        course.append(attempt)
    return course


def _trial(before: Sequence[Attempt], course: Sequence[Attempt], here: Gpu | None) -> Trial | None:
    incident = stand(before, before[0].asked) if before else None
    if incident is None or incident.root is None:
        return None
    survived = _survived(course, _window(before, incident))
    if survived is None:
        return None
    first = course[0]
    went_on = first.resumed_step if first.resumed_step is not None else first.planned_step or 0
    lost = max(0, (before[-1].furthest_step or 0) - went_on)
    return Trial(incident.root.kind, gpu_word(first, here), first.rung or "", _took(course, incident), survived, lost)


def _window(before: Sequence[Attempt], incident: Incident) -> int:
    ill = next(attempt for attempt in before if attempt.number == incident.root_attempt)
    return window_after(incident.reach, incident.reach - (ill.resumed_step or 0))


def _took(course: Sequence[Attempt], incident: Incident) -> bool:
    """Tell whether the change was seen in the job; one that nothing was said of is taken at its word."""
    changed = course[0].asked.changes_from(incident.kept)
    ignored = (not_taken(attempt.asked, attempt.effective) for attempt in course)
    return not any(name in changed for names in ignored for name in names)


def _survived(course: Sequence[Attempt], window: int) -> bool | None:
    """Tell whether the run got past the fault for good; None while, or where, nobody can say."""
    last = course[-1]
    if last.outcome is Outcome.SUCCEEDED or any(attempt.recovered for attempt in course):
        return True
    if last.fault is not None and last.fault.kind is FaultKind.NOT_LEARNING:
        return False
    if max((attempt.furthest_step or 0) for attempt in course) >= window:
        return True
    return False if last.fault is not None and _of_the_run(last.fault) else None


def _of_the_run(fault: Fault) -> bool:
    """Tell whether a fault says something about the rung; one of the machine does not."""
    return numeric(fault) or fault.kind is FaultKind.UNKNOWN_EXIT
