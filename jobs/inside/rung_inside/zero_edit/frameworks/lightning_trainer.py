"""Sets precision, clipping, accumulation and the checkpoint to resume from in Lightning's Trainer."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from rung_inside.contract import asked_knobs
from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.knobs import param_dtype
from rung_inside.zero_edit.own_checkpoints import saving
from rung_inside.zero_edit.resume import framework_resume
from rung_inside.zero_edit.telemetry import effective_knobs

# For native_fp16 Rung casts the module and gives its optimizer FP32 shadows; Lightning itself must do nothing.
PRECISION_NAMES = {"amp_fp16": "16-mixed", "bf16": "bf16-mixed", "fp32": "32-true", "native_fp16": "32-true"}
OLD_PRECISION_NAMES = {"amp_fp16": 16, "bf16": "bf16", "fp32": 32, "native_fp16": 32}


def install(package: Any) -> None:
    """Patch the Trainer of one package, `lightning.pytorch` or `pytorch_lightning`."""
    trainer = package.Trainer

    def set_arguments(_trainer: Any, *args: Any, **kwargs: Any) -> Any:
        return (_trainer, *args), _arguments(package, kwargs)

    patch.before(trainer, "__init__", set_arguments)
    patch.wrap(trainer, "fit", _fit)
    patch.after(trainer, "save_checkpoint", _saved)
    patch.before(package.callbacks.ModelCheckpoint, "setup", _choose_folder)
    _patch_resume(package)
    _patch_requeue(package)


def _choose_folder(callback: Any, *_: Any, **__: Any) -> None:
    """Let checkpoints without a folder of the script's go to the job's: else each launch has another, by a number.

    Only where the pattern of the job file is for Lightning's files: else nobody looks for them there.
    """
    folder = os.environ.get("RUNG_CHECKPOINT_DIR", "")
    wanted = os.environ.get("RUNG_CHECKPOINT_PATTERN", "").endswith(".ckpt")
    if callback.dirpath is None and folder and wanted and asked_knobs.may_change():
        callback.dirpath = folder


def _arguments(package: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the Trainer with the knobs in them."""
    kwargs = dict(given)
    if run_state.asked_knob("precision") in PRECISION_NAMES:
        _ask_precision(package, kwargs, run_state.asked_knob("precision"))
    clip = run_state.asked_knob("clip")
    # Only if the script clips: manual optimization refuses it, and the optimizer's step clips otherwise.
    if clip is not None and kwargs.get("gradient_clip_val") and kwargs["gradient_clip_val"] > clip:
        kwargs["gradient_clip_val"] = clip
    if run_state.asked_knob("accumulation") is not None:
        kwargs["accumulate_grad_batches"] = run_state.asked_knob("accumulation")
    return kwargs


def _ask_precision(package: Any, kwargs: dict[str, Any], precision: str) -> None:
    given = kwargs.get("plugins")
    plugins = list(given) if isinstance(given, (list, tuple)) else [given] if given is not None else []
    of_precision = [each for each in plugins if _is_precision(each)]
    if precision == "amp_fp16" and any(str(getattr(each, "precision", "")) == "16-mixed" for each in of_precision):
        return
    kwargs["plugins"] = [each for each in plugins if each not in of_precision]
    newer = int(str(getattr(package, "__version__", "2")).split(".")[0]) >= 2
    kwargs["precision"] = (PRECISION_NAMES if newer else OLD_PRECISION_NAMES)[precision]


def _is_precision(plugin: Any) -> bool:
    """Return whether a plugin sets the precision, by class names; the module differs between versions."""
    return any(cls.__name__ in ("Precision", "PrecisionPlugin") for cls in type(plugin).__mro__)


def _fit(fit: Callable[..., Any], trainer: Any, *args: Any, **kwargs: Any) -> Any:
    patch.quietly(saving.refuse_trainer, "Lightning")
    # All of it at once: training_step may call its parts one by one and use its own parameters.
    patch.quietly(param_dtype.cast_model, args[0] if args else kwargs.get("model"))
    if getattr(trainer, "accumulate_grad_batches", None) is not None:
        effective_knobs.set_framework_knob("accumulation", trainer.accumulate_grad_batches)
    # model, train_dataloaders, val_dataloaders, datamodule, ckpt_path
    given = args[4] if len(args) > 4 else kwargs.get("ckpt_path")
    path = patch.quietly(framework_resume.choose_checkpoint, given, os.path.exists)
    if path != given:
        args, kwargs = (*args[:4], *args[5:]), {**kwargs, "ckpt_path": path}
    return fit(trainer, *args, **kwargs)


def _saved(_result: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
    path = args[0] if args else kwargs.get("filepath")
    if path and trainer.is_global_zero:
        framework_resume.report_saved(path)


def _patch_resume(package: Any) -> None:
    connectors = __import__(f"{package.__name__}.trainer.connectors.checkpoint_connector", fromlist=["*"])
    for name in ("_CheckpointConnector", "CheckpointConnector"):
        connector = getattr(connectors, name, None)
        if connector is not None:
            patch.before(connector, "resume_end", _resumed)


def _patch_requeue(package: Any) -> None:
    environments = __import__(f"{package.__name__}.plugins.environments", fromlist=["*"])
    patch.after(environments.SLURMEnvironment, "__init__", _leave_requeueing_to_rung)


def _leave_requeueing_to_rung(_result: Any, environment: Any, *_: Any, **__: Any) -> None:
    """Keep Lightning from queueing its job in Slurm again: Rung launches the run itself, and one of them is enough."""
    if asked_knobs.may_change():
        environment.auto_requeue = False


def _resumed(connector: Any, *_: Any, **__: Any) -> None:
    path = getattr(connector, "_ckpt_path", None) or getattr(connector, "resume_checkpoint_path", None)
    trainer = connector.trainer
    if path and str(getattr(trainer.state.fn, "value", "")) == "fit" and os.path.exists(path):
        framework_resume.report_loaded(path, trainer.global_step)
