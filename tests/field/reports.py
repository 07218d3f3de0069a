"""The field reports as data: how each job fails, with which message, and how near to its reference it must come."""

from __future__ import annotations

from dataclasses import dataclass
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

    @property
    def folder(self) -> Path:
        return CATALOG / self.job


REPORTS = {
    report.job: report
    for report in (
        Report("accuracy-conditioning", ("fp16_overflow",), "without overflow"),
        Report("mmgcn", ("nan_loss",), "Training loss is nan"),
        Report("sar-kd", ("nan_loss",), "Numerical issue: total_loss=nan"),
        Report("audio-lora", ("unscale_error",), "Attempting to unscale FP16 gradients"),
        Report("dbnet-ocr", ("nan_loss",), "train/loss=nan"),
        # How too high an lr shows depends on rounding; trials decide in each case.
        Report("small-gpt", ("divergence", "nan_loss", "not_learning", LEVEL), "loss", 0.1, "fixed", may_be_lower=True),
    )
}
