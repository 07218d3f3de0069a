"""Reads the numbers of an update from the live objects, and writes them as a `step` record."""

from __future__ import annotations

import math
from typing import Any

import torch

from rung_inside.contract import records
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.telemetry.async_readback import Numbers

_gradients = run_state.gradients
_scalers = run_state.scalers
# Without the Python function around it: this runs in every update on a GPU.
is_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None) or torch.cuda.is_current_stream_capturing


def number(value: Any) -> float | None:
    """Return a number that is on the host; None for one on a GPU."""
    if isinstance(value, torch.Tensor):
        return float(value) if value.device.type == "cpu" and value.numel() == 1 else None
    return None if value is None else float(value)


def scale_tensor() -> Any:
    """Return the loss scale of the first scaler that is enabled, as a tensor on its device; None without one."""
    return getattr(run_state.live_scaler(), "_scale", None)


def copied_scale() -> Any:
    """Return a copy of the loss scale as it is now; None without one."""
    scale = scale_tensor()
    return scale.clone() if isinstance(scale, torch.Tensor) else None


def norm_and_scale() -> tuple[float | None, float | None]:
    """Return the gradient norm and the loss scale, where they are on the host."""
    norm, scale = _gradients.norm, None
    # As `live_scaler` and `number`, without their calls.
    for reference in _scalers.references:
        scaler = reference()
        if scaler is not None and scaler._enabled:
            scale = scaler._scale
            break
    if type(norm) is torch.Tensor and norm.is_cpu and not norm.ndim:
        norm = norm.item()
    elif norm is not None:
        norm = number(norm)
    if type(scale) is torch.Tensor and scale.is_cpu and not scale.ndim:
        return norm, scale.item()
    return norm, number(scale)


def largest_lr(groups: Any) -> float | None:
    """Return the largest learning rate of an optimizer's groups; others may be frozen or smaller by design."""
    return max((lr for group in groups if (lr := number(group.get("lr"))) is not None), default=None)


def can_wait(loss: Any) -> bool:
    """Return whether a number can be read from the GPU at once."""
    return bool(loss.is_cuda) and not is_capturing()


def found_inf(optimizer: Any) -> Any:
    """Return the flag on the GPU by which an optimizer that unscales itself skips an update."""
    for scaler in _scalers:
        state = getattr(scaler, "_per_optimizer_states", {}).get(id(optimizer), {})
        for flag in state.get("found_inf_per_device", {}).values():
            return flag
    return None


def is_bad(numbers: Numbers) -> bool:
    """Return whether the loss is not finite, or the gradients that were used are not."""
    loss, norm = numbers.loss, numbers.norm
    if loss is not None and not math.isfinite(loss):
        return True
    return not (norm is None or numbers.skipped or math.isfinite(norm))


def emit(numbers: Numbers, optimizer: int | None = None) -> None:
    """Write the record of an update."""
    emit_all([numbers], optimizer)


def emit_all(updates: list[Numbers], optimizer: int | None = None) -> None:
    """Write the records of several updates together."""
    records.emit_lines(text_of(updates, optimizer))


def text_of(updates: list[Numbers], optimizer: int | None = None) -> str:
    """Return the records of updates: as records.line makes them, but without a call for each value."""
    text = ""
    for numbers in updates:
        loss, lr, norm, skipped = numbers.loss, numbers.lr, numbers.norm, numbers.skipped
        text += f"{records.PREFIX} step step={numbers.step}"
        # Measured numbers are rounded to six digits.
        if loss is not None:
            text += f" loss={float(f'{loss:.6g}')!r}"
        if lr is not None:
            text += f" lr={float(f'{lr:.6g}')!r}"
        if norm is not None:
            text += f" grad_norm={float(f'{norm:.6g}')!r}"
        if numbers.scale is not None:
            text += f" scale={numbers.scale!r}"
        if skipped is not None:
            text += " skipped=1" if skipped else " skipped=0"
        if optimizer is not None:
            text += f" optimizer={optimizer}"
        text += "\n"
    return text


def as_numbers(update: Any) -> Numbers:
    """Return an update that was not reported as an object."""
    if isinstance(update, Numbers):
        return update
    step, source, loss, lr = update
    return Numbers(step, source, loss, lr, norm=None, scale=None, skipped=False)


def range_of(text: Any) -> range:
    """Return the numbers of the updates that are left out."""
    first, _, last = str(text or "").partition("-")
    return range(int(first), int(last) + 1) if first.isdigit() and last.isdigit() else range(0)
