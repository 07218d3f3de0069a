"""Judges a case under a regimen: it is cured if it is as good as a healthy run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.gauntlet.case import Case

# As good as the healthy FP32 run: within this share of its held-out loss, or better.
# A lowered lr is seldom the tuned one, so it has more room.
WITHIN, WITHIN_LR = 0.01, 0.05
# Whoever says "recovered" about a run that is worse than the healthy one by more than this share is wrong.
FALSE_ABOVE = 0.10
# A fault that nothing cures must be named after at most this many relaunches.
RELAUNCHES_TO_NAME = 3
VALUE = re.compile(r"val_loss (\S+)")
REFERENCE = "reference"


@dataclass(frozen=True)
class Result:
    """The result of one case under one regimen, at `times` its number of steps."""

    case: str
    regimen: str
    times: int
    ended_well: bool
    val_loss: float | None
    launches: int
    steps_lost: int
    seconds: float
    steps: int
    half_steps: int
    # The final reason, and one line for each attempt.
    said: str = ""
    story: tuple[str, ...] = ()
    # The word of Rung about the run: survived, recovered, not_learning, or none.
    said_word: str | None = None
    # Trials among the launches, and the steps of those that did not win.
    trials: int = 0
    trial_steps: int = 0

    @property
    def relaunches(self) -> int:
        return self.launches - 1

    @property
    def launches_outside_trials(self) -> int:
        return self.launches - self.trials

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Verdict:
    result: Result
    case: Case
    reference: float | None

    @property
    def length(self) -> int:
        """Return the steps of the whole run, however it was treated."""
        return self.case.steps * self.result.times

    @property
    def cured(self) -> bool:
        within = WITHIN_LR if self.case.lr else WITHIN
        return self.result.ended_well and self.no_worse_than(within)

    @property
    def left_alone(self) -> bool:
        """Return whether a healthy run was launched once and ended as it would have without Rung."""
        same = self.reference is not None and self.result.val_loss == self.reference
        return self.result.ended_well and self.result.launches == 1 and same

    @property
    def false_recovered(self) -> bool:
        """Return whether Rung called a run recovered that is clearly worse than the healthy one."""
        known = self.reference is not None
        return known and self.result.said_word == "recovered" and not self.no_worse_than(FALSE_ABOVE)

    def no_worse_than(self, share: float) -> bool:
        """Return whether the held-out loss is at most this share above the healthy run's."""
        value = self.result.val_loss
        if value is None or self.reference is None or not math.isfinite(value):
            return False
        return value <= self.reference * (1 + share)

    @property
    def named(self) -> bool:
        """Return whether a fault that nothing cures was named, and soon enough."""
        diagnosed = any(word in self.result.said for word in self.case.diagnosis)
        return diagnosed and not self.result.ended_well and self.result.relaunches <= RELAUNCHES_TO_NAME

    @property
    def right(self) -> bool:
        if self.case.healthy:
            return self.left_alone
        return self.cured if self.case.curable else self.named

    @property
    def off(self) -> str:
        """Return the difference of the held-out loss from the healthy run's as text."""
        value = self.result.val_loss
        if value is None or self.reference is None:
            return "none"
        if not math.isfinite(value):
            return str(value)
        share = value / self.reference - 1
        return f"{share:+.1%}" if abs(share) < 10 else f"x{value / self.reference:.2g}"


def value_in(log: str) -> float | None:
    """Return the held-out loss that a script printed last."""
    found = VALUE.findall(log)
    try:
        return float(found[-1]) if found else None
    except ValueError:
        return None


def read_results(path: Path) -> list[Result]:
    """Return the results in a file, the newest of each kind; none if there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = {}
    for data in map(json.loads, lines):
        result = Result(**{**data, "story": tuple(data["story"])})
        kept[result.case, result.regimen, result.times] = result
    return list(kept.values())


def judge(results: Sequence[Result], cases: Iterable[Case]) -> list[Verdict]:
    """Return a verdict on every result that is not a reference, in the catalog's order."""
    references = {(r.case, r.times): r.val_loss for r in results if r.regimen == REFERENCE}
    tried = [result for result in results if result.regimen != REFERENCE]
    return [
        Verdict(result, case, references.get((case.name, result.times)))
        for case in cases
        for result in tried
        if result.case == case.name
    ]
