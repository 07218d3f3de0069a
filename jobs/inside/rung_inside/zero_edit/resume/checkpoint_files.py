"""Reports the checkpoint files that the script writes, and publishes those that it loads.

The name of a checkpoint is the first part of its path below RUNG_CHECKPOINT_DIR, so one in a folder has the folder's
name. Files elsewhere (pretrained weights, data) are not reported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rung_inside.contract import asked_knobs, kept_versions, records
from rung_inside.numerics import finite
from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.resume.checkpoint_paths import name_in_folder, path_of

# The name and update last reported; and the update of each file written, since it may get its final name later.
_last_reported: list[Any] = [None]
_written: dict[str, int] = {}
# The update of the last write without a file name, such as into a buffer.
_unnamed_step: list[int] = [-1]


def install(torch: Any) -> None:
    patch.after(torch, "save", _saved)
    # Other modules of torch call it from there.
    torch.serialization.save = torch.save
    patch.after(torch, "load", _loaded)
    torch.serialization.load = torch.load
    for name in ("replace", "rename"):
        patch.after(os, name, _renamed)


def install_safetensors(module: Any) -> None:
    patch.after(module, "save_file", _saved)
    patch.after(module, "load_file", _loaded_file)


def install_sharded(module: Any) -> None:
    patch.after(module, "save", _saved_sharded)
    patch.after(module, "load", _loaded_sharded)


def _saved(_result: Any, state: Any = None, target: Any = None, *_: Any, **kwargs: Any) -> None:
    target = kwargs.get("f", kwargs.get("filename", target))
    path = path_of(target)
    if path is None:
        _unnamed_step[0] = run_state.step()
        return
    if hasattr(target, "flush"):
        target.flush()  # a copy of an open file must have all of it
    run_state.publish("saved", path, state if state is not None else kwargs.get("obj"))
    report_saved(path, run_state.step())


def _saved_sharded(_result: Any, state: Any = None, *_: Any, **kwargs: Any) -> None:
    path = path_of(kwargs.get("checkpoint_id"))
    if path is not None:
        run_state.publish("saved", path, state)
        report_saved(path, run_state.step())


def _renamed(_result: Any, source: Any = None, target: Any = None, *_: Any, **kwargs: Any) -> None:
    """Follow a file to its final name."""
    old, new = path_of(kwargs.get("src", source)), path_of(kwargs.get("dst", target))
    if old is None or new is None or name_in_folder(new) is None:
        return
    step = _written.get(os.path.abspath(old), _unnamed_step[0])
    if step >= 0:
        _unnamed_step[0] = -1
        report_saved(new, step)


def report_saved(path: str, step: int) -> None:
    """Report a file or folder that holds the run after this update, once."""
    counts = bool(run_state.updates()) or asked_knobs.may_change()
    if kept_versions.is_watched(path):
        _report_version(path, step if counts else None)
        return
    if not counts:
        return  # a script that is only watched may count steps of its own, with no update that is seen
    if len(_written) > 64:
        del _written[next(iter(_written))]
    _written[os.path.abspath(path)] = step
    _written[os.path.dirname(os.path.abspath(path))] = step
    name = name_in_folder(path)
    if name is None:
        folder = os.path.dirname(path) or os.curdir
        patch.note(f"files are saved to {folder}: Rung resumes only from checkpoint.dir, so name that folder there")
    elif _last_reported[0] != (name, step):
        _last_reported[0] = (name, step)
        records.emit("saved", step=step, file=name)


def _report_version(path: str, step: int | None) -> None:
    """Keep a version of the one file that every save overwrites, and report it under the name of the version."""
    if not records.is_first_rank():
        return
    try:
        if not _is_healthy():
            kept_versions.reject(path)
            patch.note(f"the weights are not finite: no version of {os.path.basename(path)} is kept from now on")
            return
        name = kept_versions.keep(path, step)
    except OSError as error:
        patch.note(f"no version of {path} could be kept: {error.strerror}")
        return
    if name is not None and step is not None and _last_reported[0] != (name, step):
        _last_reported[0] = (name, step)
        records.emit("saved", step=step, file=name)


def _is_healthy() -> bool:
    """Return whether what the optimizers train is finite."""
    groups = (group for optimizer in run_state.optimizers for group in optimizer.param_groups)
    return finite.all_finite(parameter for group in groups for parameter in group["params"])


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
