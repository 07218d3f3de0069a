"""The field reports as data: how each job fails, with which message, and how near to FP32 it must come."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CATALOG = Path(__file__).resolve().parents[2] / "jobs" / "catalog"
# Share of the FP32 run's metric.
NEAR_ENOUGH = 0.01


@dataclass(frozen=True)
class Report:
    """How the first attempt of a job must fail: with one of these faults, and with these words in its log."""

    job: str
    faults: tuple[str, ...]
    words: str

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
    )
}
