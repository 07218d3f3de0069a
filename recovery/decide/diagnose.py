"""Owns the diagnosis: which rungs a fault points at by itself, and why. Where it is open, the ladder's order remains.

What it goes by: the step, how the numbers went before, the line that a traceback names, the words of the message, the
replay of the failing step (replayed.py), what the script computes in by itself, and the GPU.
"""

from __future__ import annotations

import re

from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Precision, RungName
from rung.recovery.decide.diagnosis import OPEN, Diagnosis
from rung.recovery.decide.replay_evidence import first_updates, read_replay
from rung.recovery.decide.rungs import BF16_CAPABILITY, RungContext
from rung.recovery.monitors.learning import is_soaring

_R = RungName
# A dtype error after this many steps may come from values that grew; before, clipping cured none (0 of 104 settings).
LONG_PROGRESS = 10_000
# A scale that collapses this early does so because every batch overflows, which only FP32 cures.
FIRST_STEPS = 200
# A loss that is NaN this early was not led there by training: it is what the model computes with its first weights.
UNTRAINED = 2
# Numbers of a fault's own family: what is NaN in the backward pass is NaN in the loss one step later.
NUMBERS = frozenset({FaultKind.NAN_LOSS, FaultKind.GRAD_NONFINITE, FaultKind.DIVERGENCE, FaultKind.NOT_LEARNING})

# finfo of a dtype that is named, and of one that is asked from a tensor.
_NAMED_FINFO = re.compile(r"finfo\((?:dtype=)?(?:\w{1,20}\.)?(?:float\d{0,3}|double|bfloat16)\)")
_FINFO = re.compile(r"finfo\(|\.dtype\b")
_OF_FP16_GRADIENTS = re.compile(r"unscale FP16|not implemented for '\w*(?:Half|BFloat16)'", re.IGNORECASE)


def diagnose(scene: RungContext) -> Diagnosis:
    """Name the rungs that the fault of a scene points at by itself."""
    fault = scene.fault
    if fault is None:
        return OPEN
    if fault.kind is FaultKind.FP16_OVERFLOW:
        return _of_overflow(fault, scene)
    if fault.kind is FaultKind.UNSCALE_ERROR:
        return _of_unscaling(fault)
    if fault.kind is FaultKind.SCALE_THRASH:
        return Diagnosis((_R.INCREASE_GROWTH_INTERVAL,), "the scale grows too soon and falls back")
    if fault.kind is FaultKind.SCALE_COLLAPSE or is_of_the_scale(fault):
        return _of_collapse(fault, scene)
    return _of_numbers(fault, scene) if fault.kind in NUMBERS else OPEN


def has_soared(fault: Fault) -> bool:
    """Tell whether the numbers were out of hand before the fault itself: then its last step tells little."""
    if is_of_the_scale(fault):
        return False
    return fault.shape == "drift" or (fault.onset is not None and fault.step is not None and fault.onset < fault.step)


def is_of_the_scale(fault: Fault) -> bool:
    """Tell whether an early warning came from steps that are skipped one after the other, and not from the loss."""
    told = fault.kind is FaultKind.DIVERGENCE and ("skipped" in fault.note or "loss scale" in fault.note)
    # Without a replay, back-offs now and then are gradients that grow, as those of too high an lr do.
    return told and (bool(fault.replay) or "in a row" in fault.note)


def is_late_overflow(fault: Fault) -> bool:
    return fault.kind is FaultKind.FP16_OVERFLOW and (fault.step or 0) >= LONG_PROGRESS


def wider(scene: RungContext) -> tuple[RungName, ...]:
    """Return the rungs of a wider range: bf16 where the GPU has it (and the job wants it), then FP32."""
    has_bf16 = scene.gpu is None or scene.gpu.capability >= BF16_CAPABILITY
    return (_R.BF16, _R.FP32) if has_bf16 else (_R.FP32,)


def loss_has_soared(scene: RungContext) -> bool:
    """Tell whether the last loss of the failed attempt, finite still, is far above the first of all."""
    if not scene.attempts:
        return False
    return is_soaring(scene.attempts[0].first_loss, scene.attempts[-1].loss)


def _of_numbers(fault: Fault, scene: RungContext) -> Diagnosis:
    if fault.shape == "drift":
        return Diagnosis((_R.LOWER_LR,), "the numbers grew over many steps, as with too high an lr")
    lowered = [attempt for attempt in scene.attempts if attempt.rung == _R.LOWER_LR]
    soon = (fault.step or 0) <= FIRST_STEPS and fault.replay.get("fp32") != "nonfinite"
    if lowered and scene.kept.lr == lowered[-1].asked.lr and (has_soared(fault) or soon):
        return Diagnosis((_R.LOWER_LR, _R.RAISE_CLIP), "a lower lr helped, and was not low enough")
    if not has_soared(fault):
        told = read_replay(fault, scene, wider(scene))
        if told is not None:
            return told
        if fault.began is not None and fault.began <= UNTRAINED and fault.kind is not FaultKind.DIVERGENCE:
            return Diagnosis((_R.FP32, *first_updates(scene)[0]), "too early for training to have caused it")
        if scene.own.precision is Precision.NATIVE_FP16:
            return Diagnosis((_R.FP32,), "the script trains FP16 parameters, where Adam's eps rounds to 0")
    if fault.shape == "spike":
        return Diagnosis((_R.RAISE_CLIP,), "the gradients jumped from one step to the next")
    return OPEN


def _of_overflow(fault: Fault, scene: RungContext) -> Diagnosis:
    gpu = scene.gpu
    if gpu is not None and not gpu.fp16_tensor_cores:
        return Diagnosis((_R.FP32,), f"{gpu.name} has no FP16 tensor cores, so FP32 is cheap")
    if is_late_overflow(fault):
        return Diagnosis((_R.RAISE_CLIP,), f"the value grew over {fault.step} steps", may=frozenset({_R.RAISE_CLIP}))
    where, _, line = fault.source.partition(": ")
    if not line:
        return OPEN
    if _FINFO.search(line) and not _NAMED_FINFO.search(line):
        same = "the limit of another tensor's dtype does not fit bf16 either: the same error, for BFloat16"
        why = f"the value is the limit of another tensor's dtype ({where}), which fits once all are FP16"
        return Diagnosis((_R.NATIVE_FP16, _R.FP32), why, cannot={_R.BF16: same})
    what = "the limit of a wider dtype" if "finfo" in line else "a value beyond 65504"
    same = f"{what} does not fit FP16 whatever holds the parameters"
    return Diagnosis(wider(scene), f"{what} is written into the code ({where})", cannot={_R.NATIVE_FP16: same})


def _of_unscaling(fault: Fault) -> Diagnosis:
    if _OF_FP16_GRADIENTS.search(fault.evidence):
        why = "the scaler wants FP32 gradients, and the trainable parameters are FP16"
        return Diagnosis((_R.FP32_PARAMS, _R.NATIVE_FP16, _R.FP32), why)
    why = "the scaler's calls are out of order, which does no harm without a scaler"
    return Diagnosis((_R.NATIVE_FP16, _R.FP32), why, cannot={_R.FP32_PARAMS: "the scaler's calls stay out of order"})


def _of_collapse(fault: Fault, scene: RungContext) -> Diagnosis:
    # A collapse begins where the scale left its range, so its onset tells nothing of the loss; the shape does.
    drifted = fault.kind is FaultKind.SCALE_COLLAPSE and fault.shape == "drift"
    if drifted or loss_has_soared(scene):
        return Diagnosis((_R.LOWER_LR,), "the loss had soared before the scale fell, as with too high an lr")
    told = read_replay(fault, scene, wider(scene))
    if told is not None:
        return told
    if (fault.step or 0) < FIRST_STEPS:
        return Diagnosis(wider(scene), "the scale collapsed from the first steps on: every batch overflows FP16")
    return OPEN
