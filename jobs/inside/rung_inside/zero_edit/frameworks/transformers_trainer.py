"""Sets the arguments of transformers' Trainer to the knobs, chooses its checkpoint, and reports its saves.

Autocast, scaler, clipping and optimizer are torch's and are set there. The arguments must agree, because the Trainer
makes decisions by them. transformers imports its modules when they are first used, so each is patched on its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from rung_inside.contract import asked_knobs
from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.own_checkpoints import saving
from rung_inside.zero_edit.resume import framework_resume
from rung_inside.zero_edit.telemetry import effective_knobs

# Which flag a precision needs on; all others go off.
FLAGS = {"amp_fp16": "fp16", "bf16": "bf16", "fp32": "", "native_fp16": ""}
ALL_FLAGS = ("fp16", "bf16", "fp16_full_eval", "bf16_full_eval")


def install_arguments(module: Any) -> None:
    # Before it, so that the Trainer's checks see the values that will be used.
    patch.before(module.TrainingArguments, "__post_init__", _set_arguments)


def _set_arguments(arguments: Any, *_: Any, **__: Any) -> None:
    if not asked_knobs.may_change():
        return
    # The filter logs the running mean instead of a NaN loss; it changes only the log.
    _set(arguments, "logging_nan_inf_filter", False)
    _ask_precision(arguments, run_state.asked_knob("precision"))
    clip, given = run_state.asked_knob("clip"), getattr(arguments, "max_grad_norm", None)
    if clip is not None and (not given or given > clip):
        _set(arguments, "max_grad_norm", clip)
    for knob, name in (("batch", "per_device_train_batch_size"), ("accumulation", "gradient_accumulation_steps")):
        if run_state.asked_knob(knob) is not None:
            _set(arguments, name, run_state.asked_knob(knob))
            _set(arguments, "auto_find_batch_size", False)


def _ask_precision(arguments: Any, precision: Any) -> None:
    if precision not in FLAGS:
        return
    for flag in ALL_FLAGS:
        if getattr(arguments, flag, False) or flag == FLAGS[precision]:
            _set(arguments, flag, flag == FLAGS[precision])
    # transformers 4 leaves the precision in the environment, where accelerate reads it.
    os.environ.pop("ACCELERATE_MIXED_PRECISION", None)


def _set(arguments: Any, name: str, value: Any) -> None:
    if hasattr(arguments, name):
        setattr(arguments, name, value)


def install_trainer(module: Any) -> None:
    patch.wrap(module.Trainer, "train", _train)


def _train(train: Callable[..., Any], trainer: Any, *args: Any, **kwargs: Any) -> Any:
    patch.quietly(saving.refuse_trainer, "transformers")
    given = args[0] if args else kwargs.pop("resume_from_checkpoint", None)
    return train(trainer, patch.quietly(framework_resume.choose_checkpoint, given, _whole), *args[1:], **kwargs)


def _whole(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "trainer_state.json"))


def install_callbacks(module: Any) -> None:
    patch.before(module.CallbackHandler, "on_train_begin", _on_begin)
    # The Trainer calls this when the folder has its last file.
    patch.before(module.CallbackHandler, "on_save", _saved)


def _on_begin(_handler: Any, arguments: Any, state: Any, *_: Any, **__: Any) -> None:
    effective_knobs.set_framework_knob("batch", arguments.per_device_train_batch_size)
    effective_knobs.set_framework_knob("accumulation", arguments.gradient_accumulation_steps)
    chosen = os.environ.get("RUNG_CHECKPOINT", "")
    if chosen and state.global_step:
        framework_resume.report_loaded(chosen, state.global_step)


def _saved(_handler: Any, arguments: Any, state: Any, *_: Any, **__: Any) -> None:
    folder = os.path.join(arguments.output_dir, f"checkpoint-{state.global_step}")
    if state.is_world_process_zero and os.path.isdir(folder):
        framework_resume.report_saved(folder)
