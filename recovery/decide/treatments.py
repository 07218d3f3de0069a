"""Owns the table of faults: which budget pays, which rungs cannot cure it and why, and what to tell a person.

Data only; `decide` reads it. The reasons are sentences that end up in a job's history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import RungName

_R = RungName


class Budget(StrEnum):
    """Who pays for the next launch."""

    LADDER = "ladder"  # a numerical fault: climb, within max_attempts
    INFRA = "infra"  # the machine's fault: same knobs again, within infra_retries
    ONCE = "once"  # nobody knows: same knobs once more
    STOP = "stop"  # no launch can help


@dataclass(frozen=True)
class Treatment:
    budget: Budget
    cannot: Mapping[RungName, str] = field(default_factory=dict)
    # What a person should look at when the ladder is at its end.
    advice: str = ""


_DTYPE = "a value or dtype error comes from the code, not from the size of the step: {} never cured one"
_SCALE_ONLY = "the loss scale is not at fault, and growth_interval changes nothing else"
_SAME_RANGE = (
    "native FP16 has the same range as autocast and no loss scaling, so what is NaN in one is NaN in the other"
)
_MORE_MEMORY = "it does not save memory"

TREATMENTS: dict[FaultKind, Treatment] = {
    FaultKind.NAN_LOSS: Treatment(
        Budget.LADDER,
        {_R.INCREASE_GROWTH_INTERVAL: _SCALE_ONLY, _R.NATIVE_FP16: _SAME_RANGE},
        "look for log, sqrt or division without an epsilon, log(sigmoid(x)), bad samples, and an lr far too high",
    ),
    FaultKind.GRAD_NONFINITE: Treatment(
        Budget.LADDER,
        {_R.INCREASE_GROWTH_INTERVAL: _SCALE_ONLY, _R.NATIVE_FP16: _SAME_RANGE},
        "look for sqrt, norm, log or division whose derivative has no bound at 0, and for an lr far too high",
    ),
    FaultKind.DIVERGENCE: Treatment(
        Budget.LADDER,
        {_R.INCREASE_GROWTH_INTERVAL: _SCALE_ONLY, _R.NATIVE_FP16: _SAME_RANGE},
        "look at the learning-rate schedule and at the samples around that step",
    ),
    FaultKind.FP16_OVERFLOW: Treatment(
        Budget.LADDER,
        {
            _R.RAISE_CLIP: _DTYPE.format("clipping"),
            _R.LOWER_LR: _DTYPE.format("a lower lr"),
            _R.INCREASE_GROWTH_INTERVAL: _DTYPE.format("growth_interval"),
        },
        "look for a constant beyond 65504, such as masked_fill(-1e9), in the line the traceback names",
    ),
    FaultKind.UNSCALE_ERROR: Treatment(
        Budget.LADDER,
        {
            _R.RAISE_CLIP: "the scaler refuses the gradients' dtype or order of calls; clipping changes neither",
            _R.LOWER_LR: "the scaler refuses the gradients' dtype or order of calls; lr changes neither",
            _R.INCREASE_GROWTH_INTERVAL: "the scaler refuses before growth_interval is ever used",
        },
        "keep trainable parameters in FP32 under AMP, and call unscale_ once per step",
    ),
    FaultKind.SCALE_COLLAPSE: Treatment(
        Budget.LADDER,
        {
            _R.INCREASE_GROWTH_INTERVAL: "the scale only falls; how often it may grow does not matter",
            _R.NATIVE_FP16: "the forward pass overflows FP16, and native FP16 has the same range",
        },
        "the forward pass overflows FP16 on every batch: look for large activations",
    ),
    FaultKind.SCALE_THRASH: Treatment(
        Budget.LADDER,
        {
            _R.RAISE_CLIP: "skipped steps come from the scale growing too soon; clipping happens after unscaling",
            _R.LOWER_LR: "skipped steps come from the scale growing too soon; lr does not change that",
        },
        "set growth_interval to 2000 or more",
    ),
    FaultKind.OOM: Treatment(
        Budget.LADDER,
        {
            _R.RAISE_CLIP: _MORE_MEMORY,
            _R.LOWER_LR: _MORE_MEMORY,
            _R.INCREASE_GROWTH_INTERVAL: _MORE_MEMORY,
            _R.NATIVE_FP16: "it trades memory against precision, which a person should choose",
            _R.FP32: "it needs more memory, not less",
        },
        "state knobs.batch (and accumulation) so that Rung can halve it, or ask for more memory",
    ),
    FaultKind.NOT_LEARNING: Treatment(Budget.LADDER, {}, "the fault is hidden but the run has stopped learning"),
    FaultKind.IMAGE_ARCH: Treatment(Budget.STOP, {}, "use an image whose torch was built for this GPU's architecture"),
    FaultKind.CUDA_FAULT: Treatment(Budget.INFRA, {}, "check the GPU: ECC and Xid errors in the kernel log"),
    FaultKind.COMM_FAULT: Treatment(Budget.INFRA, {}, "check the links between the ranks"),
    FaultKind.INFRA_FAULT: Treatment(Budget.INFRA, {}, "check the machine: disk space, memory, who killed the process"),
    FaultKind.UNKNOWN_EXIT: Treatment(Budget.ONCE, {}, "read the last lines of the log"),
    FaultKind.RULE_STOP: Treatment(Budget.STOP, {}, "look at the line that the rule of the job file was written for"),
    FaultKind.RULE_RETRY: Treatment(Budget.INFRA, {}, "look at the line that the rule of the job file was written for"),
}

_NUMBERS = frozenset({FaultKind.NAN_LOSS, FaultKind.GRAD_NONFINITE, FaultKind.DIVERGENCE, FaultKind.NOT_LEARNING})
_RANGE = frozenset({FaultKind.FP16_OVERFLOW, FaultKind.SCALE_COLLAPSE, FaultKind.SCALE_THRASH})
# The further rungs are made for a few faults each; none of them is tried for another.
MADE_FOR: dict[RungName, tuple[frozenset[FaultKind], str]] = {
    _R.FP32_PARAMS: (frozenset({FaultKind.UNSCALE_ERROR}), "it only gives the scaler FP32 gradients to unscale"),
    _R.BF16: (_NUMBERS | _RANGE | {FaultKind.UNSCALE_ERROR}, "it changes the range of numbers and drops the scaler"),
    _R.SKIP_DATA: (_NUMBERS, "it only leaves out the batches around a spike"),
    _R.LOWER_BATCH: (frozenset({FaultKind.OOM}), "it only saves memory"),
}


def cannot_cure(kind: FaultKind, rung: RungName) -> str | None:
    """Return why a rung cannot cure a fault of this kind, or None where it may."""
    faults, does = MADE_FOR.get(rung, (None, ""))
    if faults is not None and kind not in faults:
        return does
    return TREATMENTS[kind].cannot.get(rung)
