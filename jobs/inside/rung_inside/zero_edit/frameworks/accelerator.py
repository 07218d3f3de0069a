"""Owns Accelerate: its mixed precision and accumulation say what the knobs ask, and its saved states are told.

Clipping, scaler and autocast are torch's own underneath, and made true there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.resume import framework_resume
from rung_inside.zero_edit.telemetry import effective_knobs

WORDS = {"amp_fp16": "fp16", "bf16": "bf16", "fp32": "no", "native_fp16": "no"}


def install(accelerate: Any) -> None:
    """Patch the one class that scripts and the Trainer of transformers make."""
    accelerator = accelerate.Accelerator
    patch.before(accelerator, "__init__", _ask)
    # Only a script that calls it accumulates by what the accelerator says.
    patch.before(accelerator, "accumulate", _accumulates)
    patch.after(accelerator, "save_state", _saved)
    patch.wrap(accelerator, "load_state", _load)


def _ask(accelerator: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the arguments with the precision and accumulation asked for."""
    word, count = WORDS.get(run_state.asked("precision")), run_state.asked("accumulation")
    if word is not None and _may_decide(word):
        # The third positional argument in every version so far; hardly anybody passes it so.
        if len(args) > 2:
            args = (*args[:2], word, *args[3:])
        else:
            kwargs = {**kwargs, "mixed_precision": word}
    if count is not None and kwargs.get("gradient_accumulation_plugin") is None and len(args) <= 3:
        kwargs = {**kwargs, "gradient_accumulation_steps": count}
    return (accelerator, *args), kwargs


def _may_decide(word: str) -> bool:
    """Make the state that all accelerators share agree; False where another library decides the precision."""
    state = getattr(sys.modules.get("accelerate.state"), "AcceleratorState", None)
    shared = getattr(state, "_shared_state", None) or {}
    if str(shared.get("distributed_type", "")).endswith(("DEEPSPEED", "FSDP", "MEGATRON_LM")):
        patch.note("the precision of an accelerator that another library runs is left as it is")
        return False
    if "_mixed_precision" in shared:
        # Asking for another than an earlier accelerator did would be an error.
        shared["_mixed_precision"] = word
    return True


def _accumulates(accelerator: Any, *_: Any, **__: Any) -> None:
    effective_knobs.tell("accumulation", accelerator.gradient_accumulation_steps)


def _saved(folder: Any, accelerator: Any, *args: Any, **kwargs: Any) -> None:
    path = folder or (args[0] if args else kwargs.get("output_dir"))
    if path and accelerator.is_main_process:
        framework_resume.say_saved(path)


def _load(load_state: Callable[..., Any], accelerator: Any, *args: Any, **kwargs: Any) -> Any:
    own = args[0] if args else kwargs.pop("input_dir", None)
    chosen = patch.quietly(_state_instead_of, own)
    result = load_state(accelerator, chosen if chosen else own, *args[1:], **kwargs)
    if chosen or own:
        patch.quietly(framework_resume.say_loaded, chosen or own, run_state.first_step())
    return result


def _state_instead_of(own: Any) -> Any:
    """Return the folder to load; never nothing, for the script has already settled where it goes on."""
    chosen = os.environ.get("RUNG_CHECKPOINT", "")
    return chosen if os.path.isdir(chosen) else own
