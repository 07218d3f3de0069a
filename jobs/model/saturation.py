"""`Saturation`: in how many updates numbers that left a place in FP32 did not fit FP16 and became its limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

# Above this share of the updates a run computes with other numbers than its script asks for, so a person is warned.
MOST_SHARE = 0.001
# One update in fewer than these is above that share, and may stay the only one of a long run.
FEW_UPDATES = 1000
ADVICE = "the code that takes them computes with 65504 instead; make the place larger, or use bf16 or fp32"


@dataclass(frozen=True)
class Saturation:
    """The updates of a run with places, and those in which a number was saturated."""

    updates: int
    saturated: int

    @property
    def share(self) -> float:
        return self.saturated / self.updates

    @property
    def warning(self) -> str | None:
        """Return what a person has to know; None where it is rare."""
        if self.share <= MOST_SHARE:
            return None
        often = f"{100 * self.share:.2g} % of the updates ({self.saturated} of {self.updates})"
        return f"values that left a place in FP32 did not fit FP16 in {often}: {ADVICE}"

    @property
    def certain_warning(self) -> str | None:
        """Return the warning, unless a single update of the first ones is all there is to warn of."""
        return self.warning if self.saturated > 1 or self.updates >= FEW_UPDATES else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Saturation:
        return cls(int(data["updates"]), int(data["saturated"]))


def read_saturation(updates: int | None, saturated: int | None) -> Saturation | None:
    """Return the two counts of a record; None where they cannot be true."""
    if updates is None or saturated is None or not 0 <= saturated <= updates or not updates:
        return None
    return Saturation(updates, saturated)
