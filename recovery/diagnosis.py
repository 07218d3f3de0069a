"""Owns the diagnosis: which rung a fault points at by itself, and why. Where it is open, the ladder's order remains."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.fault import Fault, FaultKind
from jobs.gpu import Gpu
from jobs.knobs import RungName
from recovery.ladder import Scene

# A dtype error after this many steps may come from values that grew; before, clipping cured none (0 of 104 settings).
LONG_PROGRESS = 10_000
# A scale that collapses this early does so because every batch overflows, which only FP32 cures.
FIRST_STEPS = 200


@dataclass(frozen=True)
class Diagnosis:
    """The rungs a fault points at, the best first, and the sentence that says why. No rungs: the diagnosis is open."""

    rungs: tuple[RungName, ...] = ()
    why: str = ""


OPEN = Diagnosis()


def diagnose(scene: Scene) -> Diagnosis:
    """Name the rungs that the fault of a scene points at by itself."""
    fault = scene.fault
    if fault is None:
        return OPEN
    if fault.kind in (FaultKind.NAN_LOSS, FaultKind.GRAD_NONFINITE, FaultKind.DIVERGENCE):
        return _of_numbers(fault)
    if fault.kind is FaultKind.FP16_OVERFLOW:
        return _of_overflow(fault, scene.gpu)
    if fault.kind is FaultKind.SCALE_COLLAPSE and (fault.step or 0) < FIRST_STEPS:
        return Diagnosis((RungName.FP32,), "the scale collapsed from the first steps on: every batch overflows FP16")
    if fault.kind is FaultKind.SCALE_THRASH:
        return Diagnosis((RungName.INCREASE_GROWTH_INTERVAL,), "the scale grows too soon and falls back")
    return OPEN


def _of_numbers(fault: Fault) -> Diagnosis:
    if fault.shape == "drift":
        return Diagnosis((RungName.LOWER_LR,), "the numbers grew over many steps, as with too high an lr")
    if fault.shape == "spike":
        return Diagnosis((RungName.RAISE_CLIP,), "the gradients jumped from one step to the next")
    return OPEN


def _of_overflow(fault: Fault, gpu: Gpu | None) -> Diagnosis:
    if gpu is not None and not gpu.fp16_tensor_cores:
        return Diagnosis((RungName.FP32,), f"{gpu.name} has no FP16 tensor cores, so FP32 is cheap")
    if is_late_overflow(fault):
        return Diagnosis((RungName.RAISE_CLIP,), f"the value grew over {fault.step} steps")
    return OPEN


def is_late_overflow(fault: Fault) -> bool:
    return fault.kind is FaultKind.FP16_OVERFLOW and (fault.step or 0) >= LONG_PROGRESS
