"""Zero-edit: sets the knobs on the live objects of a script that was not written for Rung; or only watches it.

Nothing happens until the script has imported torch. Each part patches one thing after one import, and its function
gets the imported module. The parts import torch, so none of them is imported before the script has done so itself.
"""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

from rung_inside.contract import records
from rung_inside.patching import on_import, patch

# The import that installs each part, in the order of patching. The function is `install` if none is named.
# All imports are waited for from the start: a framework imports torch half-way, and then is not complete itself.
PARTS = (
    # The first hook for failures runs last.
    ("torch", "patching.on_exit"),
    ("torch", "zero_edit.telemetry.end_record"),
    ("torch", "zero_edit.hooks.backward"),
    ("torch", "zero_edit.hooks.forward"),
    ("torch", "zero_edit.knobs.param_dtype"),
    # Before the hook that records the dtypes of autocasts: it must see them as the script enters them.
    ("torch", "zero_edit.knobs.keep_fp16"),
    ("torch", "zero_edit.knobs.matmul"),
    ("torch", "zero_edit.hooks.loss_functions"),
    ("torch", "zero_edit.knobs.autocast"),
    ("torch", "zero_edit.hooks.grad_scaler"),
    ("torch", "zero_edit.knobs.grad_clip"),
    ("torch", "zero_edit.hooks.optimizer_step"),
    ("torch", "zero_edit.telemetry.effective_knobs"),
    # Before the files of the script are followed, and before anything is said about where it begins.
    ("torch", "zero_edit.own_checkpoints.saving"),
    ("torch", "zero_edit.resume.checkpoint_files"),
    ("torch", "zero_edit.resume.resume_step"),
    ("torch", "zero_edit.telemetry.waiting_records"),
    ("torch", "zero_edit.telemetry.step_records"),
    ("torch", "zero_edit.replay.replay"),
    ("torch", "zero_edit.telemetry.near_limit_watch"),
    ("torch", "zero_edit.hooks.stop_at"),
    ("safetensors.torch", "zero_edit.resume.checkpoint_files:install_safetensors"),
    ("torch.distributed.checkpoint", "zero_edit.resume.checkpoint_files:install_sharded"),
    ("torch.utils.tensorboard.writer", "zero_edit.hooks.trackers:install_file_writer"),
    ("tensorboardX.writer", "zero_edit.hooks.trackers:install_file_writer"),
    ("mlflow", "zero_edit.hooks.trackers:install_mlflow"),
    ("transformers.training_args", "zero_edit.frameworks.transformers_trainer:install_arguments"),
    ("transformers.trainer", "zero_edit.frameworks.transformers_trainer:install_trainer"),
    ("transformers.trainer_callback", "zero_edit.frameworks.transformers_trainer:install_callbacks"),
    ("accelerate", "zero_edit.frameworks.accelerator"),
    ("lightning.pytorch", "zero_edit.frameworks.lightning_trainer"),
    ("pytorch_lightning", "zero_edit.frameworks.lightning_trainer"),
)
# The modules that the script has imported so far, complete, and the parts that are not installed yet.
_imported: dict[str, Any] = {}
_left = list(PARTS)


def start() -> None:
    """Wait for the imports of the script; without RUNG_MODE (zero-edit or watch) do nothing."""
    if os.environ.get("RUNG_MODE") not in ("zero-edit", "watch"):
        return
    for trigger in dict.fromkeys(trigger for trigger, _ in PARTS):
        on_import.when_imported(trigger, functools.partial(_on_import, trigger))


def _on_import(trigger: str, module: Any) -> None:
    """Install the parts that can be installed now: none before torch is complete."""
    _imported[trigger] = module
    if "torch" not in _imported:
        return
    ready = [part for part in _left if part[0] in _imported]
    _left[:] = [part for part in _left if part not in ready]
    failed = [part for name, part in ready if name == "torch" and not _install_part(part, module)]
    if trigger == "torch" and not failed:
        records.report_hands(module)
    for name, part in ready:
        if name != "torch":
            patch.quietly(_install, part, _imported[name])


def _install_part(part: str, module: Any) -> bool:
    """Install a part that Rung cannot do without; record why if that fails, and return whether it did not."""
    try:
        _install(part, module)
    except Exception as error:
        patch.quietly(records.report_no_hands, "part_failed", part=part, error=f"{type(error).__name__}: {error}"[:200])
        return False
    return True


def _install(part: str, module: Any) -> None:
    name, _, function = part.partition(":")
    getattr(importlib.import_module(f"rung_inside.{name}"), function or "install")(module)
