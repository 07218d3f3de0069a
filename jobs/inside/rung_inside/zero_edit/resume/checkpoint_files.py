"""Owns the sight of checkpoint files: which the script writes, at which update, and which one it went on from.

Paths are told by their first part below RUNG_CHECKPOINT_DIR, so that a checkpoint in a folder has the folder's name.
What lies elsewhere (pretrained weights, data) is nobody's business.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rung_inside.contract import records
from rung_inside.patching import on_import, patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.resume.checkpoint_paths import below, path_of

# The name and update of what was last told, and of what was written: a file may get its final name afterwards.
_told: list[Any] = [None]
_written: dict[str, int] = {}
# The update at which something was written that has no name yet, as into a buffer.
_nameless: list[int] = [-1]


def install(torch: Any) -> None:
    patch.after(torch, "save", _saved)
    # Other modules of torch call it by its home.
    torch.serialization.save = torch.save
    patch.after(torch, "load", _loaded)
    torch.serialization.load = torch.load
    for name in ("replace", "rename"):
        patch.after(os, name, _renamed)
    on_import.when_imported("safetensors.torch", _install_safetensors)
    on_import.when_imported("torch.distributed.checkpoint", _install_sharded)


def _install_safetensors(module: Any) -> None:
    patch.after(module, "save_file", _saved)
    patch.after(module, "load_file", _loaded_file)


def _install_sharded(module: Any) -> None:
    patch.after(module, "save", _saved_sharded)
    patch.after(module, "load", _loaded_sharded)


def _saved(_result: Any, state: Any = None, target: Any = None, *_: Any, **kwargs: Any) -> None:
    path = path_of(kwargs.get("f", kwargs.get("filename", target)))
    if path is None:
        _nameless[0] = run_state.step()
        return
    run_state.publish("saved", path, state if state is not None else kwargs.get("obj"))
    tell(path, run_state.step())


def _saved_sharded(_result: Any, state: Any = None, *_: Any, **kwargs: Any) -> None:
    path = path_of(kwargs.get("checkpoint_id"))
    if path is not None:
        run_state.publish("saved", path, state)
        tell(path, run_state.step())


def _renamed(_result: Any, source: Any = None, target: Any = None, *_: Any, **kwargs: Any) -> None:
    """Follow a file to its final name."""
    old, new = path_of(kwargs.get("src", source)), path_of(kwargs.get("dst", target))
    if old is None or new is None or below(new) is None:
        return
    step = _written.get(os.path.abspath(old), _nameless[0])
    if step >= 0:
        _nameless[0] = -1
        tell(new, step)


def tell(path: str, step: int) -> None:
    """Report a file or folder that holds the run after this update, once."""
    if len(_written) > 64:
        del _written[next(iter(_written))]
    _written[os.path.abspath(path)] = step
    _written[os.path.dirname(os.path.abspath(path))] = step
    name = below(path)
    if name is None:
        folder = os.path.dirname(path) or os.curdir
        patch.note(f"files are saved to {folder}: Rung resumes only from checkpoint.dir, so name that folder there")
    elif _told[0] != (name, step):
        _told[0] = (name, step)
        records.emit("saved", step=step, file=name)


def _loaded(state: Any, source: Any = None, *_: Any, **kwargs: Any) -> None:
    path = path_of(kwargs.get("f", source))
    if path is not None:
        run_state.publish("loaded", path, state)


def _loaded_file(state: Any, source: Any = None, *_: Any, **kwargs: Any) -> None:
    _loaded(state, kwargs.get("filename", source))


def _loaded_sharded(_result: Any, state: Any = None, *_: Any, **kwargs: Any) -> None:
    path = path_of(kwargs.get("checkpoint_id"))
    if path is not None:
        run_state.publish("loaded", path, state if isinstance(state, Mapping) else None)
