"""Clamps the numbers that a script hands to torch and that a 16-bit tensor cannot hold, such as a mask of -1e9.

The number becomes the limit of the tensor's dtype: what `torch.finfo(scores.dtype).min` would have been. Infinity and
NaN fit and stay. Named functions are replaced, and only if it is asked: a TorchFunctionMode slows down every operation.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

import torch

from rung_inside.contract import records
from rung_inside.patching import patch
from rung_inside.places import counting

# The largest finite number of each dtype.
LIMITS = {dtype: float(torch.finfo(dtype).max) for dtype in (torch.float16, torch.bfloat16)}
INFINITE = float("inf")
# Functions that take a number for the elements of their tensor, as methods, as functions of torch, or both.
FILLING = (
    *("masked_fill", "masked_fill_", "where", "full_like", "fill", "fill_", "new_full", "index_fill", "index_fill_"),
    *("scatter", "scatter_", "clamp", "clamp_", "clamp_min", "clamp_max", "clip", "clip_", "fill_diagonal_"),
    *("nan_to_num", "nan_to_num_", "__setitem__"),
)
COMPARING = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "lt", "le", "gt", "ge", "eq", "ne")
# With a number beyond the limit a sum is infinite for every element; a product can still be a number that fits.
ADDING = ("__add__", "__radd__", "__iadd__", "__sub__", "__rsub__", "__isub__", "add", "add_", "sub", "sub_")
MULTIPLYING = ("__mul__", "__rmul__", "__imul__", "mul", "mul_")
# Numbers from here on are the limits of wider dtypes, meant as masks: FP32 ends at 3.4e38.
LIMIT_OF_WIDER = 1e38
# So many different lines of a script are reported.
MOST_LINES = 8

_is_on = [False]
_clamped = [0]
_noted: set[tuple[str, int]] = set()


def install() -> None:
    """Replace the functions, once."""
    _is_on[0] = True
    for names, least in ((FILLING, 0.0), (COMPARING, 0.0), (ADDING, 0.0), (MULTIPLYING, LIMIT_OF_WIDER)):
        for owner in (torch.Tensor, torch):
            for name in names:
                if owner is torch.Tensor or not name.startswith("__"):
                    _replace(owner, name, least)
    for owner, name in ((torch.nn.functional, "pad"), (torch.nn.functional, "threshold"), (torch, "full")):
        _replace(owner, name, 0.0)


@contextlib.contextmanager
def tried() -> Iterator[None]:
    """Clamp constants for a while."""
    before = _is_on[0]
    install()
    try:
        yield
    finally:
        _is_on[0] = before


def count() -> int:
    """Return how many numbers were clamped, each time that one was used."""
    return _clamped[0]


def _replace(owner: Any, name: str, least: float) -> None:
    original = getattr(owner, name, None)
    if original is None or hasattr(original, "_rung_constants"):
        return
    is_where, begin = name == "where", 2 if name == "__setitem__" else 1
    is_binary = name not in FILLING

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        # Most operations have two tensors, and no number to look at.
        if is_binary and len(args) == 2 and isinstance(args[1], torch.Tensor) and args[1].ndim:
            return original(*args, **kwargs)
        first = args[0] if args else None
        dtype = first.dtype if isinstance(first, torch.Tensor) else None
        if is_where or dtype is None or "dtype" in kwargs:
            dtype = _dtype_of(args, kwargs)
        if dtype in LIMITS and _is_on[0]:
            # The first is the tensor, or a size; an index may be any number.
            fitting = _fitting if getattr(first, "ndim", 1) else _fitting_number
            args = (*args[:begin], *[fitting(each, dtype, least, name) for each in args[begin:]])
            kwargs = {key: fitting(each, dtype, least, name) for key, each in kwargs.items()}
        return original(*args, **kwargs)

    replaced._rung_constants = True  # type: ignore[attr-defined]
    setattr(owner, name, replaced)


def _dtype_of(args: Any, kwargs: Any) -> Any:
    """Return the dtype of the result where the first argument does not decide it."""
    if isinstance(kwargs.get("dtype"), torch.dtype):
        return kwargs["dtype"]
    given = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor) and each.is_floating_point()]
    # A tensor without dimensions is a number to torch's rules: its dtype does not widen that of the others.
    found = {each.dtype for each in given if each.dim()} or {each.dtype for each in given}
    return functools.reduce(torch.promote_types, found) if found else None


def _fitting(value: Any, dtype: Any, least: float, name: str) -> Any:
    """Return the value, or the limit of the dtype where it does not fit; tensors only where they are one number."""
    if isinstance(value, torch.Tensor) and not value.dim() and value.dtype in (torch.float32, torch.float64):
        return _fitting_tensor(value, dtype, least, name)
    return _fitting_number(value, dtype, least, name)


def _fitting_number(value: Any, dtype: Any, least: float, name: str) -> Any:
    limit = LIMITS[dtype]
    if not isinstance(value, (float, int)) or -limit <= value <= limit:
        return value
    if abs(value) < least or abs(value) == INFINITE or value != value:
        return value
    _count_clamp(value, name)
    return limit if value > 0 else -limit


def _fitting_tensor(value: Any, dtype: Any, least: float, name: str) -> Any:
    """Return a tensor that is one number, clamped. Such a number does not widen the dtype of a tensor that it meets."""
    # One that is trained is no constant, and reading a number from a GPU waits for it; torch itself waits to fill.
    if value.requires_grad or _is_compiling() or (value.device.type != "cpu" and not name.startswith("masked_fill")):
        return value
    number = value.item()
    fitting = _fitting_number(number, dtype, least, name)
    return value if fitting is number else torch.tensor(fitting, dtype=value.dtype, device=value.device)


def _is_compiling() -> bool:
    compiler = getattr(torch, "compiler", None)
    return bool(compiler is not None and hasattr(compiler, "is_compiling") and compiler.is_compiling())


def _count_clamp(value: float, name: str) -> None:
    # A compiled function would be compiled again for every count.
    if _is_compiling() or not counting.is_on():
        return
    _clamped[0] += 1
    patch.quietly(_note_line, value, name)


def _note_line(value: float, name: str) -> None:
    """Write which line of the script hands over the number, once for each line."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    line = (frame.f_code.co_filename, frame.f_lineno)
    if line in _noted or len(_noted) >= MOST_LINES:
        return
    _noted.add(line)
    records.emit("constant", value=float(value), function=name, file=line[0], line=line[1])
