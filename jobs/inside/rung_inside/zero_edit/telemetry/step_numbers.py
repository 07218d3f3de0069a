"""Reads the numbers of an update from the live objects, and writes them as a `step` record."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch

from rung_inside.contract import records
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.telemetry.async_readback import Numbers

_gradients = run_state.gradients
_scalers = run_state.scalers
# The newest loss scale on the host. A scaler keeps it for good and changes it in place.
_host_scale: list[Any] = [object()]
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
    scale = None
    # As `live_scaler`, without its call.
    for reference in _scalers.references:
        scaler = reference()
        if scaler is not None and scaler._enabled:
            scale = scaler._scale
            break
    norm = _gradients.norm
    try:
        # As `number`, without its calls, for most: None, or a tensor with one number.
        if norm is not None:
            norm = norm.item() if norm.is_cpu else None
        if scale is _host_scale[0]:
            return norm, scale.item()
        if scale is not None and scale.is_cpu:
            _host_scale[0] = scale
    except (AttributeError, RuntimeError, ValueError):
        norm = number(_gradients.norm)
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


def are_good(arrived: list[Numbers], steady: Any) -> bool:
    """Return whether all these updates are good, and of the same optimizer as those before them, which were good."""
    total = 0.0
    for each in arrived:
        if each.source is not steady or each.skipped or each.loss is None:
            return False
        total += each.loss if each.norm is None else each.loss + each.norm
    return steady is not None and math.isfinite(total)


def emit(numbers: Numbers, optimizer: int | None = None) -> None:
    """Write the record of an update."""
    emit_all([numbers], optimizer)


def emit_all(updates: list[Numbers], optimizer: int | None = None) -> None:
    """Write the records of several updates together."""
    records.emit_lines(text_of(map(as_tuple, updates), optimizer))


def text_of(updates: Iterable[tuple[Any, ...]], optimizer: int | None = None) -> str:
    """Return the records of updates, given as tuples: as records.line makes them, without a call for each value."""
    lines, lr_before, lr_text, scale_before, scale_text = [], None, "", None, ""
    end = "\n" if optimizer is None else f" optimizer={optimizer}\n"
    for step, _, loss, lr, norm, scale, skipped in updates:
        # Measured numbers are rounded to six digits. The text of most is right at once, without the call of `_rounded`.
        loss_text = norm_text = ""
        if loss is not None:
            text = "%.6g" % loss
            loss_text = " loss=" + (text if "." in text and "e" not in text else _rounded(text))
        if norm is not None:
            text = "%.6g" % norm
            norm_text = " grad_norm=" + (text if "." in text and "e" not in text else _rounded(text))
        # These two are mostly the same as just before.
        if lr is not lr_before:
            lr_before, lr_text = lr, "" if lr is None else f" lr={_rounded('%.6g' % lr)}"
        if scale is not scale_before and scale != scale_before:
            scale_before, scale_text = scale, "" if scale is None else f" scale={scale!r}"
        skipped_text = "" if skipped is None else " skipped=1" if skipped else " skipped=0"
        lines.append(f"rung| step step={step}{loss_text}{lr_text}{norm_text}{scale_text}{skipped_text}{end}")
    return "".join(lines)


def _rounded(text: str) -> str:
    """Return the number of this text as Python writes it, such as 1000000.0 for 1e+06."""
    return repr(float(text))


# Returns the values of an update in the order of Numbers, by one call.
as_tuple: Callable[[Numbers], tuple[Any, ...]] = operator.attrgetter(
    "step", "source", "loss", "lr", "norm", "scale", "skipped"
)


def as_numbers(update: Any) -> Numbers:
    """Return an update that was not reported as an object."""
    if isinstance(update, Numbers):
        return update
    return Numbers(*update)


def range_of(text: Any) -> range:
    """Return the numbers of the updates that are left out."""
    first, _, last = str(text or "").partition("-")
    return range(int(first), int(last) + 1) if first.isdigit() and last.isdigit() else range(0)
