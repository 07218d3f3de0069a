"""Zero-edit: sets the knobs on the live objects of a script that was not written for Rung.

Nothing happens until the script imports torch or a framework. Each part patches one thing and has
`install(module)`, called after that import.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from rung_inside.patching import on_import, patch

# The import that installs each part, in the order of patching.
PARTS = (
    # The first hook for failures runs last.
    ("torch", "patching.on_exit"),
    ("torch", "zero_edit.hooks.backward"),
    ("torch", "zero_edit.hooks.forward"),
    ("torch", "zero_edit.knobs.param_dtype"),
    ("torch", "zero_edit.hooks.loss_functions"),
    ("torch", "zero_edit.knobs.autocast"),
    ("torch", "zero_edit.hooks.grad_scaler"),
    ("torch", "zero_edit.knobs.grad_clip"),
    ("torch", "zero_edit.hooks.optimizer_step"),
    ("torch", "zero_edit.telemetry.effective_knobs"),
    ("torch", "zero_edit.resume.checkpoint_files"),
    ("torch", "zero_edit.resume.resume_step"),
    ("torch", "zero_edit.telemetry.step_records"),
    ("torch", "zero_edit.replay.replay"),
    ("torch", "zero_edit.hooks.stop_at"),
    ("transformers", "zero_edit.frameworks.transformers_trainer"),
    ("accelerate", "zero_edit.frameworks.accelerator"),
    ("lightning.pytorch", "zero_edit.frameworks.lightning_trainer"),
    ("pytorch_lightning", "zero_edit.frameworks.lightning_trainer"),
)


def start() -> None:
    """Wait for the imports of the script; without RUNG_MODE=zero-edit do nothing."""
    if os.environ.get("RUNG_MODE") != "zero-edit":
        return
    for trigger in dict.fromkeys(trigger for trigger, _ in PARTS):
        on_import.when_imported(trigger, _install)


def _install(module: Any) -> None:
    for trigger, part in PARTS:
        if trigger == module.__name__:
            patch.quietly(_install_part, part, module)


def _install_part(name: str, module: Any) -> None:
    importlib.import_module(f"rung_inside.{name}").install(module)
