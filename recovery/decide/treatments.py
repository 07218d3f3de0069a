"""Lists for each fault which budget it uses, which rungs cannot cure it and why, and the advice for a person.

The reasons and the advice are shown in a job's history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import RungName
from rung.recovery.monitors.fault_groups import BAD_NUMBERS, OUT_OF_RANGE

_R = RungName


class Budget(StrEnum):
    """Which limit the next launch counts against."""

    LADDER = "ladder"  # a numerical fault: climb, within max_attempts
    INFRA = "infra"  # the machine's fault: same knobs again, within infra_retries
    ONCE = "once"  # the cause is unknown: same knobs once more
    STOP = "stop"  # no launch can help


@dataclass(frozen=True)
class Treatment:
    budget: Budget
    ruled_out: Mapping[RungName, str] = field(default_factory=dict)
    # What a person should look at when no rung is left.
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
        "state knobs.batch (and accumulation) so that Rung can lower it, or ask for more memory",
    ),
    FaultKind.NOT_LEARNING: Treatment(Budget.LADDER, {}, "the fault is hidden but the run has stopped learning"),
    FaultKind.IMAGE_ARCH: Treatment(Budget.STOP, {}, "use an image whose torch was built for this GPU's architecture"),
    FaultKind.CUDA_FAULT: Treatment(Budget.INFRA, {}, "check the GPU: ECC and Xid errors in the kernel log"),
    FaultKind.COMM_FAULT: Treatment(Budget.INFRA, {}, "check the links between the ranks"),
    FaultKind.INFRA_FAULT: Treatment(Budget.INFRA, {}, "check the machine: disk space, memory, who killed the process"),
    FaultKind.STALLED: Treatment(Budget.INFRA, {}, "read the stacks at the end of its log: where each thread waits"),
    FaultKind.UNKNOWN_EXIT: Treatment(Budget.ONCE, {}, "read the last lines of the log"),
    FaultKind.RULE_STOP: Treatment(Budget.STOP, {}, "look at the line that the rule of the job file was written for"),
    FaultKind.RULE_RETRY: Treatment(Budget.INFRA, {}, "look at the line that the rule of the job file was written for"),
}

# Each of these rungs is tried only for a few faults.
MADE_FOR: dict[RungName, tuple[frozenset[FaultKind], str]] = {
    _R.FP32_PARAMS: (frozenset({FaultKind.UNSCALE_ERROR}), "it only gives the scaler FP32 gradients to unscale"),
    _R.BF16: (
        BAD_NUMBERS | OUT_OF_RANGE | {FaultKind.UNSCALE_ERROR},
        "it changes the range of numbers and drops the scaler",
    ),
    _R.SKIP_DATA: (BAD_NUMBERS, "it only leaves out the batches around a spike"),
    _R.LOWER_BATCH: (frozenset({FaultKind.OOM}), "it only saves memory"),
    _R.CLAMP_CONSTANTS: (BAD_NUMBERS | OUT_OF_RANGE, "it only changes constants that FP16 cannot hold"),
    _R.FP32_MODULES: (BAD_NUMBERS | OUT_OF_RANGE, "it only changes the range of numbers in some places"),
}


def climbs_ladder(fault: Fault | None) -> bool:
    """Return whether rungs treat this fault."""
    return fault is not None and TREATMENTS[fault.kind].budget is Budget.LADDER


def cannot_cure(kind: FaultKind, rung: RungName) -> str | None:
    """Return why a rung cannot cure a fault of this kind, or None when it can."""
    faults, does = MADE_FOR.get(rung, (None, ""))
    if faults is not None and kind not in faults:
        return does
    return TREATMENTS[kind].ruled_out.get(rung)
