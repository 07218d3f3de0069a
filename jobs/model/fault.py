"""The faults that can happen to a job, as data. What to do about them is in recovery/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class FaultKind(StrEnum):
    NAN_LOSS = "nan_loss"
    GRAD_NONFINITE = "grad_nonfinite"
    FP16_OVERFLOW = "fp16_overflow"
    SCALE_COLLAPSE = "scale_collapse"
    SCALE_THRASH = "scale_thrash"
    UNSCALE_ERROR = "unscale_error"
    DIVERGENCE = "divergence"
    NOT_LEARNING = "not_learning"
    OOM = "oom"
    IMAGE_ARCH = "image_arch"
    CUDA_FAULT = "cuda_fault"
    COMM_FAULT = "comm_fault"
    INFRA_FAULT = "infra_fault"
    # No sign of life for far longer than usual.
    STALLED = "stalled"
    UNKNOWN_EXIT = "unknown_exit"
    # A rule in the job file matched.
    RULE_STOP = "rule_stop"
    RULE_RETRY = "rule_retry"


@dataclass(frozen=True)
class Fault:
    """Something that happened to a job, with the line that shows it."""

    kind: FaultKind
    evidence: str
    line: int | None = None
    step: int | None = None
    # The first step with bad numbers; a checkpoint must be older than this.
    onset: int | None = None
    # How the numbers changed before: "spike" (from one step to the next) or "drift" (over many), where it is known.
    shape: str | None = None
    # What the line alone does not show, as a sentence for a person: why it is this fault, or which rule matched.
    note: str = ""
    # The result of a replay of the failing step, if the job made one: weights, inputs, fp32 ("finite" or not), where,
    # and whether FP32 fits the memory.
    replay: Mapping[str, str] = field(default_factory=dict)
    # The innermost line of the script in the traceback, as `file:line: text`.
    source: str = ""
    # The first gradient norm that the run reported, if that was before the fault.
    first_norm: float | None = None

    @property
    def began(self) -> int | None:
        """Return the step a checkpoint must be older than, where it is known."""
        known = [step for step in (self.onset, self.step) if step is not None]
        return min(known) if known else None

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "kind": self.kind.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Fault:
        return cls(**{**data, "kind": FaultKind(data["kind"])})
