"""A `Row` of the ledger: what one rung did for one fault on one kind of GPU, as counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rung.jobs.model.fault import FaultKind
from rung.jobs.model.gpu import Gpu
from rung.recovery.ledger.chance import Chance, chance

CPU = "cpu"
# Without a diagnosis, the first rung is a guess.
OPEN = 0.5


def gpu_type(gpu: Gpu | None) -> str:
    return gpu.type if gpu else CPU


@dataclass(frozen=True)
class WonAgainst:
    """In how many rounds of trials a rung won against another one, and by how much."""

    rung: str
    rounds: int
    # In how many of them the other rung hit a fault.
    failed: int
    # The median of how far the other loss was above, at equal steps, as a share; None: no other loss was seen there.
    lead: float | None


@dataclass(frozen=True)
class Row:
    """What one rung did for one fault on one kind of GPU.

    tries = took + not_known + not_taken. The results count all tries but those that were seen not to take:
    took + not_known = survived + recovered + fell_short + failed.
    """

    fault: FaultKind
    gpu: str
    rung: str
    tries: int = 0
    # The asked value was seen from inside; nothing was reported; another value was seen.
    took: int = 0
    not_known: int = 0
    not_taken: int = 0
    # Past the fault, and whether it learns is not known.
    survived: int = 0
    recovered: int = 0
    # Past the fault, and not learning or short of the `success` of its job file.
    fell_short: int = 0
    # The fault came again, or another one of the run itself.
    failed: int = 0
    # The median of the steps that had to be run again; None: it was only tried in trials.
    lost: int | None = None
    # Rounds of trials that it took part in, those that it won, and those in which it failed or was clearly behind.
    trials: int = 0
    wins: int = 0
    beaten: int = 0
    # The median of how far the next best rung was above it where it won, as a share.
    lead: float | None = None
    won_against: tuple[WonAgainst, ...] = ()

    @property
    def judged(self) -> int:
        """Return how many runs recovered or did not; one that only survived is neither."""
        return self.recovered + self.fell_short + self.failed

    def chance(self, prior: float = OPEN) -> Chance:
        """Return the chance of recovery, where the rules alone would say `prior`.

        A round of trials in which the rung was beaten counts as a run that did not recover: it failed, or its loss was
        clearly above that of the best trial, and a run that stays there is not called recovered. A win counts by what
        came of the run that it led to.
        """
        return chance(prior, self.recovered, self.judged + self.beaten)

    def to_dict(self) -> dict[str, Any]:
        found = self.chance()
        numbers = {"mean": found.mean, "low": found.low, "high": found.high}
        return {**asdict(self), "chance": {name: round(value, 4) for name, value in numbers.items()}}
