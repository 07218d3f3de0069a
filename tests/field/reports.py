"""The field reports as data: how each job fails, with which message, and how near to its reference it must come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

CATALOG = Path(__file__).resolve().parents[2] / "jobs" / "catalog"
# Share of the reference's metric.
NEAR_ENOUGH = 0.01
# A run whose loss is only seen to be level shows no fault, but the event `level`.
LEVEL = "level"


@dataclass(frozen=True)
class Report:
    """How the first attempt of a job must fail: with one of these faults, and with these words in its log.

    `reference` is the variant to compare with where FP32 fails like FP16.
    """

    job: str
    faults: tuple[str, ...]
    words: str
    near_enough: float = NEAR_ENOUGH
    reference: str | None = None
    # A lower metric than the reference's is no trouble: there may be a better lr than the one called right.
    may_be_lower: bool = False
    # The fault by the numbers from inside, if a job file for zero-edit stands beside the other.
    inside: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return CATALOG / self.job

    def seen_inside(self) -> Report:
        """Return the report for the job file with zero-edit: its own words may never be printed."""
        return replace(self, faults=self.inside, words="") if self.inside else self


REPORTS = {
    report.job: report
    for report in (
        Report("accuracy-conditioning", ("fp16_overflow",), "without overflow"),
        Report("mmgcn", ("nan_loss",), "Training loss is nan", inside=("nan_loss",)),
        Report("sar-kd", ("nan_loss",), "Numerical issue: total_loss=nan", inside=("nan_loss",)),
        Report("audio-lora", ("unscale_error",), "Attempting to unscale FP16 gradients"),
        Report("dbnet-ocr", ("nan_loss",), "train/loss=nan", inside=("scale_collapse",)),
        # How too high an lr shows depends on rounding; trials decide in each case.
        Report("small-gpt", ("divergence", "nan_loss", "not_learning", LEVEL), "loss", 0.1, "fixed", may_be_lower=True),
    )
}
