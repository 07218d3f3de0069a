"""Compares what the ledger would have said when each rung was taken with what came of it.

Nothing is stored: each chance is computed again from the runs that had ended before the rung was taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from rung.jobs.job import Attempt, Job
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.gpu import Gpu
from rung.recovery.decide.decide import climb_of
from rung.recovery.decide.rung_choice import rules_order
from rung.recovery.evidence.rounds import rounds
from rung.recovery.evidence.tries import Result, Try, gpu_of, tries
from rung.recovery.ledger.chance import Chance, chance

# Five ranges of predictions: with fewer, a wrong one hides; with more, each has too few runs.
RANGES = ((0.0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.0))

Key = tuple[FaultKind, str, str]
# When something was known, and whether it was a recovery.
Known = tuple[float, bool]


@dataclass(frozen=True)
class Prediction:
    """The chance of one rung when it was taken, and what came."""

    job: str
    attempt: int
    fault: FaultKind
    gpu: str
    rung: str
    chance: Chance
    # It won its trials; the chance is the one from before them.
    by_trials: bool
    recovered: bool


@dataclass(frozen=True)
class Group:
    """How many predictions there are, their mean, and the share of them that recovered."""

    rungs: int
    predicted: float
    recovered: float
    # The mean of the squared differences: 0 is perfect.
    brier: float

    @property
    def brier_of_mean(self) -> float:
        """Return the score of saying the share that recovered every time: what knows nothing about rungs gets."""
        return self.recovered * (1 - self.recovered)


@dataclass(frozen=True)
class Calibration:
    predictions: tuple[Prediction, ...] = ()
    # Rungs whose run only survived: whether it learns is not known, so it counts neither way.
    not_known: int = 0

    @property
    def all(self) -> Group | None:
        return group_of(self.predictions)

    def ranges(self) -> list[tuple[float, float, Group]]:
        """Return the ranges of predictions that have any."""
        found = (
            (low, high, group_of([each for each in self.predictions if _is_in(each, low, high)]))
            for low, high in RANGES
        )
        return [(low, high, group) for low, high, group in found if group is not None]

    def chosen(self, *, by_trials: bool) -> Group | None:
        return group_of([each for each in self.predictions if each.by_trials is by_trials])


def _is_in(prediction: Prediction, low: float, high: float) -> bool:
    mean = prediction.chance.mean
    return low <= mean < high or mean == high == 1


def group_of(predictions: Sequence[Prediction]) -> Group | None:
    if not predictions:
        return None
    pairs = [(each.chance.mean, float(each.recovered)) for each in predictions]
    brier = fmean((said - came) ** 2 for said, came in pairs)
    return Group(len(pairs), fmean(said for said, _ in pairs), fmean(came for _, came in pairs), brier)


def calibrate(jobs: Iterable[tuple[Job, Sequence[Attempt]]], here: Gpu | None = None) -> Calibration:
    """Return what the ledger would have said for every rung that was taken and whose result is known."""
    taken: list[tuple[Job, Try, Sequence[Attempt]]] = []
    known: dict[Key, list[Known]] = defaultdict(list)
    for job, attempts in jobs:
        found = list(tries(attempts, here))
        taken += [(job, each, attempts) for each in found]
        for key, at, recovered in _known(found, attempts, here):
            known[key].append((at, recovered))
    made = (_prediction(job, each, attempts, known, here) for job, each, attempts in taken)
    unknown = sum(each.took is not False and each.result is Result.SURVIVED for _, each, _ in taken)
    return Calibration(tuple(each for each in made if each is not None), unknown)


def _known(found: Sequence[Try], attempts: Sequence[Attempt], here: Gpu | None) -> Iterable[tuple[Key, float, bool]]:
    """Yield what counts in the chance of a rung, with the time at which it was known."""
    for each in found:
        if each.recovered is not None and each.known_at is not None:
            yield (each.fault, each.gpu, each.rung), each.known_at, each.recovered
    for tried in rounds(attempts, here):
        for entry in tried.entries:
            if entry.beaten and tried.known_at is not None:
                yield (tried.fault, tried.gpu, entry.rung), tried.known_at, False


def _prediction(
    job: Job, taken: Try, attempts: Sequence[Attempt], known: dict[Key, list[Known]], here: Gpu | None
) -> Prediction | None:
    at, recovered = taken.before[-1].ended_at, taken.recovered
    if recovered is None or at is None or taken.before[-1].fault is None:
        return None
    key = (taken.fault, taken.gpu, taken.rung)
    before = [came for when, came in known.get(key, ()) if when <= at]
    found = chance(_prior(job, taken, here), sum(before), len(before))
    return Prediction(job.id, taken.attempt.number, *key, found, _by_trials(taken, attempts), recovered)


def _prior(job: Job, taken: Try, here: Gpu | None) -> float:
    """Return what the rules alone said when the rung was taken, from the knobs that a person had set then."""
    then = replace(job, knobs=taken.before[0].asked)
    climb = climb_of(then, taken.before, gpu_of(taken.attempt, here))
    return rules_order(then, climb.root, climb.context).prior(taken.rung)


def _by_trials(taken: Try, attempts: Sequence[Attempt]) -> bool:
    """Return whether the rung was taken because it won trials about the fault before it."""
    about = taken.before[-1].number
    return any(each.trial.won and each.trial.about == about for each in attempts if each.trial)
