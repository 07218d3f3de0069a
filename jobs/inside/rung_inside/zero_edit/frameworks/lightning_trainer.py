"""Owns Lightning's Trainer, in both of its packages: precision, clipping, accumulation and where fit goes on from."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.knobs import param_dtype
from rung_inside.zero_edit.resume import framework_resume
from rung_inside.zero_edit.telemetry import effective_knobs

# native_fp16 is made by casting the module and compensating its optimizer; Lightning itself must do nothing then.
WORDS = {"amp_fp16": "16-mixed", "bf16": "bf16-mixed", "fp32": "32-true", "native_fp16": "32-true"}
OLD_WORDS = {"amp_fp16": 16, "bf16": "bf16", "fp32": 32, "native_fp16": 32}


def install(package: Any) -> None:
    """Patch one package's Trainer; `lightning.pytorch` and `pytorch_lightning` are two of a kind."""
    trainer = package.Trainer

    def ask(_trainer: Any, *args: Any, **kwargs: Any) -> Any:
        return (_trainer, *args), _asked(package, kwargs)

    patch.before(trainer, "__init__", ask)
    patch.wrap(trainer, "fit", _fit)
    patch.after(trainer, "save_checkpoint", _saved)
    _patch_resume(package)


def _asked(package: Any, own: dict[str, Any]) -> dict[str, Any]:
    """Return the Trainer's arguments with what the knobs ask in them."""
    kwargs = dict(own)
    if run_state.asked("precision") in WORDS:
        _ask_precision(package, kwargs, run_state.asked("precision"))
    clip = run_state.asked("clip")
    # Only where the script clips: manual optimization refuses it, and torch's own step clips where nobody does.
    if clip is not None and kwargs.get("gradient_clip_val") and kwargs["gradient_clip_val"] > clip:
        kwargs["gradient_clip_val"] = clip
    if run_state.asked("accumulation") is not None:
        kwargs["accumulate_grad_batches"] = run_state.asked("accumulation")
    return kwargs


def _ask_precision(package: Any, kwargs: dict[str, Any], precision: str) -> None:
    given = kwargs.get("plugins")
    plugins = list(given) if isinstance(given, (list, tuple)) else [given] if given is not None else []
    of_precision = [each for each in plugins if _is_precision(each)]
    if precision == "amp_fp16" and any(str(getattr(each, "precision", "")) == "16-mixed" for each in of_precision):
        return
    kwargs["plugins"] = [each for each in plugins if each not in of_precision]
    newer = int(str(getattr(package, "__version__", "2")).split(".")[0]) >= 2
    kwargs["precision"] = (WORDS if newer else OLD_WORDS)[precision]


def _is_precision(plugin: Any) -> bool:
    """Tell a precision plugin by its ancestors' names; where the class lies differs between versions."""
    return any(cls.__name__ in ("Precision", "PrecisionPlugin") for cls in type(plugin).__mro__)


def _fit(fit: Callable[..., Any], trainer: Any, *args: Any, **kwargs: Any) -> Any:
    # Its parts may be called one by one in training_step, and parameters of its own used there, so all of it at once.
    patch.quietly(param_dtype.settle, args[0] if args else kwargs.get("model"))
    if getattr(trainer, "accumulate_grad_batches", None) is not None:
        effective_knobs.tell("accumulation", trainer.accumulate_grad_batches)
    # model, train_dataloaders, val_dataloaders, datamodule, ckpt_path
    own = args[4] if len(args) > 4 else kwargs.get("ckpt_path")
    path = patch.quietly(framework_resume.instead_of, own, os.path.exists)
    if path != own:
        args, kwargs = (*args[:4], *args[5:]), {**kwargs, "ckpt_path": path}
    return fit(trainer, *args, **kwargs)


def _saved(_result: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
    path = args[0] if args else kwargs.get("filepath")
    if path and trainer.is_global_zero:
        framework_resume.say_saved(path)


def _patch_resume(package: Any) -> None:
    connectors = __import__(f"{package.__name__}.trainer.connectors.checkpoint_connector", fromlist=["*"])
    for name in ("_CheckpointConnector", "CheckpointConnector"):
        connector = getattr(connectors, name, None)
        if connector is not None:
            patch.before(connector, "resume_end", _resumed)


def _resumed(connector: Any, *_: Any, **__: Any) -> None:
    path = getattr(connector, "_ckpt_path", None) or getattr(connector, "resume_checkpoint_path", None)
    trainer = connector.trainer
    if path and str(getattr(trainer.state.fn, "value", "")) == "fit" and os.path.exists(path):
        framework_resume.say_loaded(path, trainer.global_step)
