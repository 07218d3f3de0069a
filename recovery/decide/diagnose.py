"""Diagnoses a fault: which rungs it points at, and why. Without a diagnosis, the order of the ladder applies.

The evidence: the step, the numbers before the fault, the line that a traceback names, the text of the message, the
replay of the failing step (replay_evidence.py), the precision of the script itself, and the GPU.
"""

from __future__ import annotations

import re

from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Precision, RungName
from rung.recovery.decide.diagnosis import OPEN, Diagnosis
from rung.recovery.decide.replay_cure import read_cure, with_cure
from rung.recovery.decide.replay_evidence import EARLY, UNTRAINED, is_stale, read_replay, rungs_for_first_updates
from rung.recovery.decide.rungs import BF16_CAPABILITY, RungContext, lacks_fp32_values
from rung.recovery.ledger.step_cost import WITHOUT_TENSOR_CORES
from rung.recovery.monitors.fault_groups import BAD_NUMBERS
from rung.recovery.monitors.levels import blew_up

_R = RungName
# These say nothing about the first updates, even if their numbers went wrong there.
_SEEN_LATER = (FaultKind.DIVERGENCE, FaultKind.NOT_LEARNING)
# A dtype error after this many steps may come from values that grew; before, clipping cured none (0 of 104 settings).
LONG_PROGRESS = 10_000
# A scale that collapses this early is caused by an overflow in every batch, which only FP32 cures.
FIRST_STEPS = 200

# finfo of a named dtype, and of the dtype of a tensor.
_NAMED_FINFO = re.compile(r"finfo\((?:dtype=)?(?:\w{1,20}\.)?(?:float\d{0,3}|double|bfloat16)\)")
_FINFO = re.compile(r"finfo\(|\.dtype\b")
_FP16_GRADIENTS = re.compile(r"unscale FP16|not implemented for '\w*(?:Half|BFloat16)'", re.IGNORECASE)


def diagnose(context: RungContext) -> Diagnosis:
    """Return the rungs that the fault points at."""
    fault = context.fault
    if fault is None:
        return OPEN
    if fault.kind is FaultKind.FP16_OVERFLOW:
        return _diagnose_overflow(fault, context)
    if fault.kind is FaultKind.UNSCALE_ERROR:
        return _diagnose_unscaling(fault)
    if fault.kind is FaultKind.SCALE_THRASH:
        return Diagnosis((_R.INCREASE_GROWTH_INTERVAL,), "the scale grows too soon and falls back")
    if from_scaler(fault) and fault.shape == "spike":
        # Not what a replay shows: the step is finite in FP32, where nothing would skip it.
        return Diagnosis((_R.RAISE_CLIP,), "the scaler skipped single updates, while the loss went on at its level")
    if fault.kind is FaultKind.SCALE_COLLAPSE or is_skip_warning(fault):
        return _diagnose_collapse(fault, context)
    return _diagnose_numbers(fault, context) if fault.kind in BAD_NUMBERS else OPEN


def blew_up_before(fault: Fault) -> bool:
    """Return whether the numbers had gone wrong before the fault; then its last step is not the cause."""
    if is_skip_warning(fault):
        return False
    return fault.shape == "drift" or (fault.onset is not None and fault.step is not None and fault.onset < fault.step)


def is_skip_warning(fault: Fault) -> bool:
    """Return whether an early warning came from skipped steps and not from the loss."""
    # Without a replay, a few back-offs can come from gradients that grow because of too high an lr.
    return from_scaler(fault) and (bool(fault.replay) or "in a row" in fault.note)


def from_scaler(fault: Fault) -> bool:
    return fault.kind is FaultKind.DIVERGENCE and ("skipped" in fault.note or "loss scale" in fault.note)


def is_late_overflow(fault: Fault) -> bool:
    return fault.kind is FaultKind.FP16_OVERFLOW and (fault.step or 0) >= LONG_PROGRESS


def wider_precisions(context: RungContext) -> tuple[RungName, ...]:
    """Return the rungs with a wider range: bf16 where the GPU has it, then FP32."""
    has_bf16 = context.gpu is None or context.gpu.capability >= BF16_CAPABILITY
    return (_R.BF16, _R.FP32) if has_bf16 else (_R.FP32,)


def loss_blew_up(context: RungContext) -> bool:
    """Return whether the last loss of the failed attempt, still finite, is far above the job's first."""
    if not context.attempts:
        return False
    return blew_up(context.attempts[0].first_loss, context.attempts[-1].loss)


def _diagnose_numbers(fault: Fault, context: RungContext) -> Diagnosis:
    if fault.shape == "drift":
        return Diagnosis((_R.LOWER_LR,), "the numbers grew over many steps, as with too high an lr")
    lowered = [attempt for attempt in context.attempts if attempt.rung == _R.LOWER_LR]
    soon = (fault.step or 0) <= FIRST_STEPS and fault.replay.get("fp32") != "nonfinite"
    if lowered and context.proven_knobs.lr == lowered[-1].asked.lr and (blew_up_before(fault) or soon):
        return Diagnosis((_R.LOWER_LR, _R.RAISE_CLIP), "a lower lr helped, and was not low enough")
    if not blew_up_before(fault):
        from_replay = read_replay(fault, context, wider_precisions(context))
        if from_replay is not None:
            return from_replay
        plain_fp16 = _diagnose_plain_fp16(fault, context)
        if plain_fp16 is not None:
            return plain_fp16
        if fault.began is not None and fault.began <= UNTRAINED and fault.kind not in _SEEN_LATER:
            return Diagnosis(
                (_R.FP32, *rungs_for_first_updates(context)[0]), "too early for training to have caused it"
            )
        if context.script_values.precision is Precision.NATIVE_FP16:
            return Diagnosis((_R.FP32,), _why_not_native(context))
    if fault.shape == "spike":
        return Diagnosis((_R.RAISE_CLIP,), "the numbers jumped from one reading to the next")
    return OPEN


def _diagnose_plain_fp16(fault: Fault, context: RungContext) -> Diagnosis | None:
    """Diagnose updates that ruin the FP16 parameters of a script whose optimizer has no FP32 values of them.

    A replay shows it. Without one, only the first updates do: the loss of step 1 comes before any update.
    """
    weights = None if is_stale(fault) else fault.replay.get("weights")
    early = fault.began is not None and 1 < fault.began <= EARLY and fault.kind not in _SEEN_LATER
    if not lacks_fp32_values(context) or weights == "finite" or not (weights == "nonfinite" or early):
        return None
    seen = "updates made them NaN or infinite" if weights == "nonfinite" else "its first updates ruined the run"
    why = f"the script trains FP16 parameters, and {seen}"
    first_why = f"{why}: its optimizer has no FP32 values of them"
    return Diagnosis((_R.NATIVE_FP16, _R.FP32), why, first_why=first_why, allowed=frozenset({_R.NATIVE_FP16}))


def _why_not_native(context: RungContext) -> str:
    if context.proven_knobs.precision is Precision.NATIVE_FP16:
        return "the script trains FP16 parameters, and FP32 values for its optimizer were not enough"
    return "the script trains FP16 parameters, where Adam's eps rounds to 0"


def _diagnose_overflow(fault: Fault, context: RungContext) -> Diagnosis:
    gpu = context.gpu
    cure = None if is_stale(fault) else read_cure(fault)
    if gpu is not None and not gpu.fp16_tensor_cores:
        cheap = f"{gpu.name} has no FP16 tensor cores, so FP32 costs {WITHOUT_TENSOR_CORES:g}x at most"
        return with_cure(Diagnosis((_R.FP32,), cheap), cure if cure and cure.cost is not None else None, context)
    if is_late_overflow(fault):
        return Diagnosis(
            (_R.RAISE_CLIP,), f"the value grew over {fault.step} steps", allowed=frozenset({_R.RAISE_CLIP})
        )
    return with_cure(_diagnose_constant(fault, context), cure, context)


def _diagnose_constant(fault: Fault, context: RungContext) -> Diagnosis:
    """Diagnose a number that the script hands to torch: clamped to FP16's limit it fits; else a wider precision."""
    where, _, line = fault.source.partition(": ")
    if not line:
        return Diagnosis((_R.CLAMP_CONSTANTS,), "the script hands torch a number that FP16 cannot hold")
    if _FINFO.search(line) and not _NAMED_FINFO.search(line):
        same = "the limit of another tensor's dtype does not fit bf16 either: the same error, for BFloat16"
        why = f"the value is the limit of another tensor's dtype ({where}), which fits once all are FP16"
        clamped = f"the value is the limit of another tensor's dtype ({where}), and FP16's own limit fits"
        rungs = (_R.CLAMP_CONSTANTS, _R.NATIVE_FP16, _R.FP32)
        return Diagnosis(rungs, why, ruled_out={_R.BF16: same}, first_why=clamped)
    what = "the limit of a wider dtype" if "finfo" in line else "a value beyond 65504"
    same = f"{what} does not fit FP16 whatever holds the parameters"
    why = f"{what} is written into the code ({where})"
    wider = wider_precisions(context)
    clamped = f"{why}, and FP16's own limit fits"
    return Diagnosis((_R.CLAMP_CONSTANTS, *wider), why, ruled_out={_R.NATIVE_FP16: same}, first_why=clamped)


def _diagnose_unscaling(fault: Fault) -> Diagnosis:
    if _FP16_GRADIENTS.search(fault.evidence):
        why = "the scaler wants FP32 gradients, and the trainable parameters are FP16"
        return Diagnosis((_R.FP32_PARAMS, _R.NATIVE_FP16, _R.FP32), why)
    why = "the scaler's calls are out of order, which does no harm without a scaler"
    return Diagnosis((_R.NATIVE_FP16, _R.FP32), why, ruled_out={_R.FP32_PARAMS: "the scaler's calls stay out of order"})


def _diagnose_collapse(fault: Fault, context: RungContext) -> Diagnosis:
    # The onset of a collapse is where the scale left its range; only its shape describes the loss.
    drifted = fault.kind is FaultKind.SCALE_COLLAPSE and fault.shape == "drift"
    if drifted or loss_blew_up(context):
        return Diagnosis((_R.LOWER_LR,), "the loss had soared before the scale fell, as with too high an lr")
    from_replay = read_replay(fault, context, wider_precisions(context))
    if from_replay is not None:
        return from_replay
    if (fault.step or 0) < FIRST_STEPS:
        return Diagnosis(
            wider_precisions(context), "the scale collapsed from the first steps on: every batch overflows FP16"
        )
    return OPEN
