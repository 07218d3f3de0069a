"""Chooses for a draft how the knobs reach the script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.job_draft.asked import Asked, Draft
from rung.recovery.doctor.job_draft.settings import Setting, value_of

# A script with one of these and without torch has no live objects that Rung could set.
OTHER_LIBRARIES = ("tensorflow", "keras", "jax", "flax", "paddle", "mxnet")
NAMES = {
    "lr": ("lr", "learning_rate", "base_lr"),
    "clip": ("clip", "grad_clip", "max_grad_norm", "clip_grad", "clip_grad_norm"),
    "batch": ("batch_size", "batch", "per_device_train_batch_size", "train_batch_size"),
    "accumulation": ("gradient_accumulation_steps", "accumulation", "accumulation_steps", "grad_accum", "accum_steps"),
}
WHOLE = ("batch", "accumulation")


def imports_inside(script: Script) -> bool:
    """Return whether the script imports rung_inside, which sets the knobs and writes the checkpoints."""
    return "rung_inside" in _roots(script)


def add_knobs(draft: Draft, script: Script, asked: Asked, settings: Mapping[str, Setting]) -> None:
    """Add how the knobs reach the script: zero-edit, unless it has no torch or imports rung_inside."""
    other = next((name for name in OTHER_LIBRARIES if name in _roots(script)), None)
    if imports_inside(script):
        draft.add("knobs", {"mode": "inside"}, f"{asked.script} imports rung_inside, which sets the knobs.")
        draft.summary.append("knobs: the script sets them by rung_inside")
    elif other is not None and not script.uses_torch:
        _add_flags(draft, asked, settings, other)
    else:
        _add_zero_edit(draft, script, asked, settings)


def _roots(script: Script) -> set[str]:
    return {module.partition(".")[0] for module in script.names.modules}


def _add_flags(draft: Draft, asked: Asked, settings: Mapping[str, Setting], library: str) -> None:
    found = {knob: each for knob in ("lr", "clip") if (each := _number(knob, settings, asked.arguments)) is not None}
    for knob, (setting, _) in found.items():
        draft.set_option(setting, f"{{{knob}}}")
    options = " and ".join(f"{setting.spelling} ({asked.at(setting.line)})" for setting, _ in found.values())
    how = f"by {options}" if options else "not at all: no option for the lr is seen, so it can only watch and relaunch"
    knobs: dict[str, Any] = {"mode": "flags", **{knob: value for knob, (_, value) in found.items()}}
    draft.add("knobs", knobs, f"{asked.script} uses {library} and not torch. Rung sets the knobs {how}.")
    draft.summary.append(f"knobs: set {how}")


def _add_zero_edit(draft: Draft, script: Script, asked: Asked, settings: Mapping[str, Setting]) -> None:
    notes = [
        "Rung sets lr, clipping, loss scaling and precision on the live objects of the script, which needs no edit. A "
        "knob that is not stated here keeps the script's own value."
    ]
    if not script.uses_torch:
        notes.append(
            f"{asked.script} itself imports no torch. If what it imports does not either, Rung can set nothing."
        )
    knobs: dict[str, Any] = {"mode": "zero-edit"}
    both = {knob: each for knob in WHOLE if (each := _number(knob, settings, asked.arguments)) is not None}
    # Half the batch without twice the accumulation would be another training.
    for knob, (setting, value) in both.items() if len(both) == len(WHOLE) else ():
        knobs[knob] = value
        draft.set_option(setting, f"{{{knob}}}")
        notes.append(f"{asked.at(setting.line)} takes {setting.spelling}, which Rung changes when memory runs out.")
    draft.add("knobs", knobs, *notes)
    draft.summary.append("knobs: set on the script's live objects (zero-edit)")


def _number(knob: str, settings: Mapping[str, Setting], argv: Sequence[str]) -> tuple[Setting, float] | None:
    """Return the setting of a knob and its value in this command; None where either is not known."""
    for setting in (settings[name] for name in NAMES[knob] if name in settings):
        value = value_of(setting, argv)
        try:
            number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else 0.0
        except ValueError:
            continue
        if 0 < number < 1e9 and (knob not in WHOLE or number.is_integer()):
            return setting, int(number) if knob in WHOLE else number
    return None
