"""Owns the sentences of a decision: the fault, the change, where the run goes on, and what the ladder's end means."""

from __future__ import annotations

from itertools import pairwise

from rung.jobs.job import Attempt
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs, Precision, not_taken
from rung.recovery.decide.checkpoint_choice import Choice
from rung.recovery.decide.incident import Incident, later
from rung.recovery.decide.rungs import RungContext
from rung.recovery.decide.treatments import TREATMENTS


def told(fault: Fault) -> str:
    """Name a fault, with its step and what its line does not say."""
    text = f"{fault.kind} at step {fault.step}" if fault.step is not None else f"{fault.kind}"
    return f"{text} ({fault.note})" if fault.note else text


def advised(text: str, fault: Fault) -> str:
    return f"{text}. What to do: {TREATMENTS[fault.kind].advice}."


def change(before: Knobs, after: Knobs) -> str:
    """Say what changes; `before` are the values in force, the script's own among them."""
    changes = after.changes_from(before).items()
    return ", ".join(
        f"{name} {new}" if name in ("params", "skip") else f"{name} {_value(name, old)} -> {new}"
        for name, (old, new) in changes
        if new is not None
    )


def _value(name: str, old: object) -> object:
    if old is not None:
        return old
    return "off" if name == "clip" else "the script's own"


def resumed(because: str, choice: Choice) -> str:
    """End a sentence with where the run goes on from."""
    if choice.checkpoint is None:
        return f"{because}; {choice.because}"
    return f"{because}; resume at step {choice.checkpoint.step}: {choice.because}"


def no_rung_left(fault: Fault, root: Fault, scene: RungContext, incident: Incident) -> str:
    """Say what the end of the ladder means."""
    steps = incident.fault_steps
    in_fp32 = [each for each in scene.attempts if each.fault and each.fault.kind is root.kind and _is_fp32(each, scene)]
    if root.kind is FaultKind.NAN_LOSS and in_fp32 and not later(in_fp32[-1].fault_step, incident.reach):
        text = (
            f"NaN in FP32 too, at step {in_fp32[-1].fault_step}: precision is not the cause, the model or the data is"
        )
    elif len(steps) > 2 and all(later(b, a) for a, b in pairwise(steps)):
        text = (
            f"{told(fault)}: every rung only delayed it (steps {', '.join(map(str, steps))}); the cause is in the code"
        )
    elif incident.tries > 1:
        text = f"{told(root)}: {incident.tries} rungs took effect and none cured it"
    else:
        text = f"{told(root)}: no rung is left"
    return advised(text, root)


def _is_fp32(attempt: Attempt, scene: RungContext) -> bool:
    """Tell whether an attempt computed in FP32: asked to and seen to, or by itself."""
    if attempt.asked.precision is None:
        return scene.own.precision is Precision.FP32
    return attempt.asked.precision is Precision.FP32 and "precision" not in not_taken(attempt.asked, attempt.effective)
