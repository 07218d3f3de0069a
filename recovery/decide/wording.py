"""Writes the sentences of a decision for a person."""

from __future__ import annotations

from itertools import pairwise

from rung.jobs.job import Attempt
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.hands import describe_no_hands
from rung.jobs.model.knobs import Knobs, Precision, RungName, no_value_text, not_taken
from rung.recovery.decide.checkpoint_choice import Choice
from rung.recovery.decide.incident import Incident, is_later
from rung.recovery.decide.rungs import RungContext, why_fp32_does_not_fit, why_so_small_a_batch, with_defaults
from rung.recovery.decide.treatments import TREATMENTS

# Knobs that no script has: "not set" before says nothing to a person.
RUNG_ONLY = ("params", "skip", "constants", "fp32_modules", "matmul")
SPELLED_OUT = {("matmul", "tf32"): "matmuls in TF32", ("matmul", "strict"): "matmuls strictly in FP32"}

# Asked of a script that is in native_fp16 by itself, this precision changes what its optimizer works on.
WITH_FP32_VALUES = "native_fp16 with FP32 values for the optimizer"


def describe_fault(fault: Fault) -> str:
    """Name a fault, with its step and its note."""
    text = f"{fault.kind} at step {fault.step}" if fault.step is not None else f"{fault.kind}"
    return f"{text} ({fault.note})" if fault.note else text


def with_advice(text: str, fault: Fault) -> str:
    return f"{text}. What to do: {TREATMENTS[fault.kind].advice}."


def describe_rung(rung: RungName, knobs: Knobs, context: RungContext) -> str:
    """Name a rung, what it changes, and why a batch was lowered by more than one split."""
    change = describe_change(context.proven_knobs, knobs, context.script_values)
    small = why_so_small_a_batch(context, knobs.batch) if rung is RungName.LOWER_BATCH else None
    return f"{rung} ({change}; {small})" if small else f"{rung} ({change})"


def describe_change(before: Knobs, after: Knobs, script_values: Knobs) -> str:
    """List the changes of what is asked, with the values of the script itself where nothing is."""
    changes = with_defaults(after, script_values).changes_from(with_defaults(before, script_values)).items()
    listed = [
        SPELLED_OUT.get((name, new), f"{name} {new}") if name in RUNG_ONLY else f"{name} {_value(name, old)} -> {new}"
        for name, (old, new) in changes
        if new is not None
    ]
    asked = after.precision if before.precision is None and after.precision is script_values.precision else None
    return ", ".join([WITH_FP32_VALUES, *listed] if asked is Precision.NATIVE_FP16 else listed)


def _value(name: str, old: object) -> object:
    # These are values in force: a script that reports no clip does not clip, also with zero-edit.
    return no_value_text(name, zero_edit=False) if old is None else old


def with_resume_point(because: str, choice: Choice) -> str:
    """Add where the run resumes."""
    if choice.checkpoint is None:
        return f"{because}; {choice.because}"
    return f"{because}; resume at step {choice.checkpoint.step}: {choice.because}"


def no_rung_left(fault: Fault, root: Fault, context: RungContext, incident: Incident) -> str:
    """Return the diagnosis of a job for which no rung is left."""
    steps = incident.fault_steps
    same_fault = [each for each in context.attempts if each.fault and each.fault.kind is root.kind]
    in_fp32 = [each.fault_step for each in same_fault if _is_fp32(each, context)]
    if root.kind is FaultKind.NAN_LOSS and in_fp32 and not is_later(in_fp32[-1], incident.furthest_fault_step):
        text = f"NaN in FP32 too, at step {in_fp32[-1]}: precision is not the cause, but a bug in the model or the data"
    elif len(steps) > 2 and all(is_later(b, a) for a, b in pairwise(steps)):
        delayed = f"every rung only delayed it (steps {', '.join(map(str, steps))}); the cause is in the code"
        text = f"{describe_fault(fault)}: {delayed}"
    elif incident.rungs_without_cure > 1:
        text = f"{describe_fault(root)}: {incident.rungs_without_cure} rungs were tried and none cured it"
    elif context.no_hands:
        return f"{describe_fault(root)}: no rung can be taken. {describe_no_hands(context.no_hands)}."
    else:
        text = f"{describe_fault(root)}: no rung is left"
    on_ladder = any(step.rung is RungName.FP32 for step in context.spec.recovery.rungs)
    too_large = why_fp32_does_not_fit(context) if on_ladder else None
    return with_advice(f"{text}; {too_large}" if too_large else text, root)


def _is_fp32(attempt: Attempt, context: RungContext) -> bool:
    """Return whether an attempt computed in FP32, on request or by itself."""
    if attempt.asked.precision is None:
        return context.script_values.precision is Precision.FP32
    return attempt.asked.precision is Precision.FP32 and "precision" not in not_taken(attempt.asked, attempt.effective)
