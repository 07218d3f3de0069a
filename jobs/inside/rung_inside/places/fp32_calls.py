"""Calls modules: those that are places in FP32, and the modules that a place calls from its own code in FP16.

    own code of a place   autocast off, inputs and own parameters in FP32
    a child of it         autocast as the script has it, inputs saturated to FP16's limits, outputs handed back in FP32
    a place as a whole    all of its modules as the own code

What leaves a place for FP16 code is saturated. In FP32 and in BF16 nothing changes.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from rung_inside.numerics.nested_tensors import tensors_in
from rung_inside.numerics.precision import live_autocast
from rung_inside.patching import patch
from rung_inside.patching.module_call import wrap_call
from rung_inside.places import autocast_state, counting, saturation
from rung_inside.places.wide_parameters import has_half, wide

_patched: set[type] = set()
_thread = threading.local()


class Place:
    """A module that computes in FP32: its own code, or with all that is in it (`is_whole`)."""

    def __init__(self, module: Any, *, is_whole: bool, is_root: bool, by_root: bool = False) -> None:
        self.module = weakref.ref(module)
        self.is_whole, self.is_root = is_whole, is_root
        # The script's call of a root is handled from outside (`call_root`), and not by its class.
        self.by_root = by_root
        # How often it ran in FP32 where the run is in FP16.
        self.ran = 0

    def parts(self, module: Any) -> list[Any]:
        return list(module.modules()) if self.is_whole else [module]


# By the id of the module; `Place.module` tells whether the id was used again.
_places: dict[int, Place] = {}


class _Frame:
    """One call in progress: the code of a place, or of a module that such code calls."""

    def __init__(self, module: Any, device_type: str, dtype: Any = None, *, is_own: bool, is_fp32: bool) -> None:
        self.module, self.device_type = module, device_type
        # The dtype of autocast that the script has here; None: off.
        self.dtype = dtype
        self.is_own, self.is_fp32 = is_own, is_fp32
        self.is_native = False
        self.was_half = dtype is not None
        self.outer_dtypes: dict[int, Any] = {}

    def copy(self) -> _Frame:
        made = _Frame(self.module, self.device_type, self.dtype, is_own=self.is_own, is_fp32=self.is_fp32)
        made.is_native = self.is_native
        return made


def _frames() -> list[_Frame]:
    if not hasattr(_thread, "frames"):
        _thread.frames = []
    return _thread.frames  # type: ignore[no-any-return]


def install() -> None:
    autocast_state.subscribe(_entered, _exited)
    checkpointing = importlib.import_module("torch.utils.checkpoint")
    patch.wrap(checkpointing, "checkpoint", _checkpoint)


def add(place: Place) -> None:
    """Make a module a place from its next call on."""
    module = place.module()
    assert module is not None
    _places[id(module)] = place
    for part in [module] if place.is_whole else module.modules():
        if type(part) not in _patched and type(part) is not torch.nn.Module:
            _patched.add(type(part))
            wrap_call(type(part), call)


@contextlib.contextmanager
def tried(places: Iterable[Place]) -> Iterator[None]:
    """Make modules places for a while, beside those that are."""
    before = dict(_places)
    for place in places:
        add(place)
    try:
        yield
    finally:
        _places.clear()
        _places.update(before)


def place_of(module: Any) -> Place | None:
    """Return the place that a module is."""
    place = _places.get(id(module))
    return place if place is not None and place.module() is module else None


def call_root(then: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
    """Call a module that the script calls itself."""
    place = place_of(module)
    if place is None or not place.by_root:
        return then(module, *args, **kwargs)
    return _call_place(place, then, module, args, kwargs)


def call(then: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
    """Call a module in FP32 if it is a place, in FP16 if a place calls it, and unchanged otherwise."""
    frames = _frames()
    inner = frames[-1] if frames else None
    # A class and the class that it inherits from may both be wrapped.
    if inner is None or inner.module is not module:
        place = place_of(module)
        # In a replay nothing else is around the call of a root.
        if place is not None and not (place.by_root and counting.is_on()):
            return _call_place(place, then, module, args, kwargs)
        if inner is not None and inner.is_own and (inner.dtype is not None or inner.is_native):
            return _call_child(inner, then, module, args, kwargs)
    return then(module, *args, **kwargs)


def _call_place(place: Place, then: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
    frames = _frames()
    outer = frames[-1] if frames else None
    device_type = device_type_of(module, args, kwargs)
    live = script_autocast(device_type)
    if live not in (None, torch.float16):
        return then(module, *args, **kwargs)
    frame = _Frame(module, device_type, live, is_own=not place.is_whole, is_fp32=True)
    parts = place.parts(module)
    frame.is_native = live is None and (has_half(module.modules()) or _is_half(args, kwargs))
    with _entered_frame(frame), wide(parts):
        result = then(module, *saturation.widened(args), **saturation.widened(kwargs))
    if not (frame.was_half or frame.is_native):
        return result
    place.ran += counting.is_on()
    # What follows the model is the loss, where FP32 numbers stay FP32; code in FP32 takes them as they are.
    if place.is_root or (outer is not None and outer.is_fp32):
        return result
    return saturation.saturated(result, torch.float16 if frame.is_native else None)


def script_autocast(device_type: str) -> Any:
    """Return the dtype of autocast that the script has here, also where the code of a place runs without it."""
    frames = _frames()
    return frames[-1].dtype if frames and frames[-1].is_fp32 else live_autocast(device_type)


def _call_child(own: _Frame, then: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
    dtype = torch.float16 if own.is_native else None
    args, kwargs = saturation.saturated(args, dtype), saturation.saturated(kwargs, dtype)
    frame = _Frame(module, own.device_type, is_own=False, is_fp32=False)
    with _entered_frame(frame, live=own.dtype):
        result = then(module, *args, **kwargs)
    return saturation.widened(result)


@contextlib.contextmanager
def _entered_frame(frame: _Frame, live: Any = None) -> Iterator[None]:
    frames = _frames()
    frames.append(frame)
    before = autocast_state.switch(frame.device_type, live)
    try:
        yield
    finally:
        frames.pop()
        autocast_state.set_live(frame.device_type, before)


def _is_half(*values: Any) -> bool:
    return any(tensor.dtype == torch.float16 for tensor in tensors_in(values))


def device_type_of(module: Any, *values: Any) -> str:
    """Return the kind of device that a module computes on: that of its parameters, or of what it is given."""
    first = next(module.parameters(), None)
    first = next(tensors_in(values), None) if first is None else first
    return "cpu" if first is None else str(first.device.type)


def _entered(context: Any) -> bool:
    """Keep an autocast that the code of a place enters from switching FP16 on; its children get it."""
    frames = _frames()
    frame = frames[-1] if frames else None
    if frame is None or not frame.is_fp32 or context.device != frame.device_type:
        return False
    frame.outer_dtypes[id(context)] = frame.dtype
    asked = autocast_state.dtype_of(context)
    frame.dtype = asked if asked == torch.float16 else None
    frame.was_half = frame.was_half or frame.dtype is not None
    return True


def _exited(context: Any) -> None:
    frames = _frames()
    if frames and id(context) in frames[-1].outer_dtypes:
        frames[-1].dtype = frames[-1].outer_dtypes.pop(id(context))


def _checkpoint(original: Callable[..., Any], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Compute a function again in the backward pass as it was computed first, in a place or below one."""
    held = [frame.copy() for frame in _frames()]
    if not held:
        return original(function, *args, **kwargs)

    def carried(*inner_args: Any, **inner_kwargs: Any) -> Any:
        before, _thread.frames = _frames(), list(held)
        try:
            return function(*inner_args, **inner_kwargs)
        finally:
            _thread.frames = before

    return original(carried, *args, **kwargs)
