"""Owns zero-edit: makes the knobs true on the live objects of a script that was not written for Rung.

Nothing happens until the script imports torch, or a framework. Each part patches one thing and has
`install(module)`, called once that module has been imported.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from rung_inside.zero import imports, patching

# Which module's import brings which part; the order is the order of patching.
PARTS = (
    # The first to be asked to speak of a failure speaks last.
    ("torch", "ending"),
    ("torch", "backward"),
    ("torch", "forwarding"),
    ("torch", "casting"),
    ("torch", "losses"),
    ("torch", "autocasting"),
    ("torch", "scaling"),
    ("torch", "clipping"),
    ("torch", "updating"),
    ("torch", "effective"),
    ("torch", "files"),
    ("torch", "resuming"),
    ("torch", "seeing"),
    ("torch", "replaying"),
    ("transformers", "huggingface"),
    ("accelerate", "accelerating"),
    ("lightning.pytorch", "lightning"),
    ("pytorch_lightning", "lightning"),
)


def start() -> None:
    """Wait for the script's own imports; without RUNG_MODE=zero-edit do nothing at all."""
    if os.environ.get("RUNG_MODE") != "zero-edit":
        return
    for trigger in dict.fromkeys(trigger for trigger, _ in PARTS):
        imports.when_imported(trigger, _install)


def _install(module: Any) -> None:
    for trigger, part in PARTS:
        if trigger == module.__name__:
            patching.quietly(_install_part, part, module)


def _install_part(name: str, module: Any) -> None:
    importlib.import_module(f"rung_inside.zero.{name}").install(module)
