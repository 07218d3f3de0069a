"""Sets mixed precision and accumulation of Accelerate to the knobs, and reports its saved states.

Clipping, scaler and autocast are torch's, and are set there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from rung_inside.contract import asked_knobs
from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.resume import framework_resume
from rung_inside.zero_edit.telemetry import effective_knobs

PRECISION_NAMES = {"amp_fp16": "fp16", "bf16": "bf16", "fp32": "no", "native_fp16": "no"}


def install(accelerate: Any) -> None:
    """Patch the class that scripts and the Trainer of transformers use."""
    accelerator = accelerate.Accelerator
    patch.before(accelerator, "__init__", _set_arguments)
    # Only a script that calls it uses the accumulation of the accelerator.
    patch.before(accelerator, "accumulate", _on_accumulate)
    patch.after(accelerator, "save_state", _saved)
    patch.wrap(accelerator, "load_state", _load)


def _set_arguments(accelerator: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the arguments with the precision and accumulation asked for."""
    name, count = PRECISION_NAMES.get(run_state.asked_knob("precision")), run_state.asked_knob("accumulation")
    if name is not None and _may_decide(name):
        # The third positional argument in every version so far; scripts rarely pass it that way.
        if len(args) > 2:
            args = (*args[:2], name, *args[3:])
        else:
            kwargs = {**kwargs, "mixed_precision": name}
    if count is not None and kwargs.get("gradient_accumulation_plugin") is None and len(args) <= 3:
        kwargs = {**kwargs, "gradient_accumulation_steps": count}
    return (accelerator, *args), kwargs


def _may_decide(name: str) -> bool:
    """Set the precision in the state that all accelerators share; False if another library decides it."""
    state = getattr(sys.modules.get("accelerate.state"), "AcceleratorState", None)
    shared = getattr(state, "_shared_state", None) or {}
    if str(shared.get("distributed_type", "")).endswith(("DEEPSPEED", "FSDP", "MEGATRON_LM")):
        patch.note("the precision of an accelerator that another library runs is left as it is")
        return False
    if "_mixed_precision" in shared:
        # A precision that differs from an earlier accelerator's would be an error.
        shared["_mixed_precision"] = name
    return True


def _on_accumulate(accelerator: Any, *_: Any, **__: Any) -> None:
    effective_knobs.set_framework_knob("accumulation", accelerator.gradient_accumulation_steps)


def _saved(folder: Any, accelerator: Any, *args: Any, **kwargs: Any) -> None:
    path = folder or (args[0] if args else kwargs.get("output_dir"))
    if path and accelerator.is_main_process:
        framework_resume.report_saved(path)


def _load(load_state: Callable[..., Any], accelerator: Any, *args: Any, **kwargs: Any) -> Any:
    given = args[0] if args else kwargs.pop("input_dir", None)
    chosen = patch.quietly(_choose_state, given)
    result = load_state(accelerator, chosen if chosen else given, *args[1:], **kwargs)
    if chosen or given:
        patch.quietly(framework_resume.report_loaded, chosen or given, run_state.first_step())
    return result


def _choose_state(given: Any) -> Any:
    """Return the folder to load; never None, since the script has decided to load one."""
    chosen = os.environ.get("RUNG_CHECKPOINT", "")
    return chosen if os.path.isdir(chosen) and asked_knobs.may_change() else given
