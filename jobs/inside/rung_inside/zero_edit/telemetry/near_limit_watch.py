"""Watches which modules come near FP16's limit, in activations and in gradients, at some of the updates of a run.

Only with RUNG_NEAR_LIMIT set, as in the FP16 run of a validation. Gradients are those that the FP16 code computes, with
the scale of the loss scaler. Nothing waits for the GPU except a report, and nothing that the script computes changes.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

import torch

from rung_inside.contract import records
from rung_inside.patching import on_exit, patch
from rung_inside.places import counting, find
from rung_inside.places.near_limit import NEAR, largest, own_outputs
from rung_inside.zero_edit import run_state

# Of the updates that are no power of two, every so many is watched.
EVERY = 32
# A run that is stopped writes no report at its end, so the last one must not be too old.
REPORT_EVERY = 1024
# A record names at most so many modules, those with the largest numbers first.
MOST_NAMES = 16
ACTIVATIONS, GRADIENTS = "activations", "gradients"


class _State:
    """What was seen so far. The peaks stay on the GPU until a report reads them."""

    def __init__(self) -> None:
        # The modules of the roots that were called in this update, by their ids.
        self.names: dict[int, str] = {}
        self.returned: dict[int, weakref.ref[Any]] = {}
        self.handle: Any = None
        self.peaks: dict[tuple[str, str], Any] = {}
        self.watched = 0


_now = _State()


def install(_torch: Any) -> None:
    if os.environ.get("RUNG_NEAR_LIMIT"):
        run_state.subscribe("forward", _on_forward)
        run_state.subscribe("updated", _on_update)
        on_exit.on_end(report)


def is_watched(update: int) -> bool:
    return update & (update - 1) == 0 or update % EVERY == 0


def _on_forward(root: Any, _args: Any, _kwargs: Any) -> None:
    """Watch the modules of this call, if it belongs to an update that is watched."""
    if not torch.is_grad_enabled() or not is_watched(run_state.updates() + 1):
        return
    model = find.unwrapped(root)
    why = find.why_unseen(root)
    if why:
        patch.note(f"numbers near FP16's limit are not watched in {type(model).__name__}: {why}")
        return
    _now.names.update({id(module): name or type(model).__name__ for name, module in model.named_modules()})
    if _now.handle is None:
        # A hook of a module itself would be saved with it.
        _now.handle = torch.nn.modules.module.register_module_forward_hook(_on_output)


def _on_output(module: Any, _args: Any, output: Any) -> None:
    name = _now.names.get(id(module))
    if name is not None and counting.is_on() and torch.is_grad_enabled() and not _is_captured():
        patch.quietly(_take, name, output)


def _is_captured() -> bool:
    """Return whether the GPU's work is recorded to be run again: what is added to it would stay in it."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    return bool(torch.cuda.is_current_stream_capturing())


def _take(name: str, output: Any) -> None:
    for tensor in own_outputs(output, _now.returned):
        _keep(name, ACTIVATIONS, tensor)
        if tensor.requires_grad:
            tensor.register_hook(lambda gradient: patch.quietly(_keep, name, GRADIENTS, gradient))


def _keep(name: str, what: str, tensor: Any) -> None:
    if tensor.dtype != torch.float16 or not tensor.numel():
        return
    peak, before = largest(tensor), _now.peaks.get((what, name))
    _now.peaks[what, name] = peak if before is None else torch.maximum(before, peak.to(before.device))


def _on_update(_optimizer: Any, _skipped: Any) -> None:
    _now.names.clear()
    _now.returned.clear()
    if _now.handle is None:
        return
    _now.handle.remove()
    _now.handle = None
    _now.watched += 1
    updates = run_state.updates()
    # The report waits for the GPU.
    if updates & (updates - 1) == 0 or updates % REPORT_EVERY == 0:
        report()


def report() -> None:
    """Write the modules that came near the limit up to now, with their largest numbers."""
    if not _now.watched:
        return
    near = {what: _listed(what) for what in (ACTIVATIONS, GRADIENTS)}
    records.emit("near", updates=run_state.updates(), watched=_now.watched, **{k: v for k, v in near.items() if v})


def _listed(what: str) -> str:
    sizes = [(name, float(peak)) for (kind, name), peak in _now.peaks.items() if kind == what]
    near = sorted((each for each in sizes if each[1] >= NEAR), key=lambda each: -each[1])
    return ",".join(f"{name}:{size:g}" for name, size in near[:MOST_NAMES])
