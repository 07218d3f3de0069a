"""Runs one forward pass of the script again, without changing the run.

It uses copies of parameters and buffers, restores the random generators, and touches no gradient. A forward that needs
other ranks is not run.
"""

from __future__ import annotations

import contextlib
import random
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch

from rung_inside.numerics import finite
from rung_inside.numerics.nested_tensors import map_tensors, tensors_in
from rung_inside.patching import patch
from rung_inside.places.find import unwrapped
from rung_inside.zero_edit.hooks.forward import unwatched

# While a forward runs in FP32 or BF16: the autocasts of the script that are changed, and their dtype; None: off.
_changed: list[tuple[list[Any], Any]] = []
HALVES = (torch.float16, torch.bfloat16)


class CannotRun(Exception):
    """This forward needs other processes, or has no gradient to check."""


def _check_one_process(module: Any) -> None:
    for each in module.modules():
        if type(each).__name__ in ("FullyShardedDataParallel", "SyncBatchNorm", "DeepSpeedEngine"):
            raise CannotRun(type(each).__name__)


@contextlib.contextmanager
def preserved_state(device: torch.device) -> Iterator[None]:
    """Leave the script's autocast for a while, and restore random generators and warnings afterwards."""
    numpy = sys.modules.get("numpy.random")
    random_state, state = random.getstate(), numpy.get_state() if numpy else None
    devices = [device.index or 0] if device.type == "cuda" else []
    try:
        plain = torch.autocast(device.type, enabled=False)
        with warnings.catch_warnings(), torch.random.fork_rng(devices=devices), plain:
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(random_state)
        if numpy:
            numpy.set_state(state)


@contextlib.contextmanager
def _uncompiled(module: Any) -> Iterator[None]:
    """Run modules that were compiled in place without their compiled code."""
    held = {each: each._compiled_call_impl for each in module.modules() if getattr(each, "_compiled_call_impl", None)}
    try:
        for each in held:
            each._compiled_call_impl = None
        yield
    finally:
        for each, compiled in held.items():
            each._compiled_call_impl = compiled


def _functional_call() -> Any:
    try:
        return import_module("torch.func").functional_call
    except ImportError:  # torch 1.13
        return import_module("torch.nn.utils.stateless").functional_call


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in HALVES else tensor


def _copies(module: Any, *, wide: bool, grads: bool) -> dict[str, torch.Tensor]:
    held: dict[str, torch.Tensor] = {}
    for name, tensor in module.named_parameters():
        copy = tensor.detach()
        copy = _wide(copy) if wide else copy
        held[name] = copy.requires_grad_() if grads and tensor.requires_grad else copy
    for name, tensor in module.named_buffers():
        # Every forward changes running means in place, so it gets copies.
        held[name] = (_wide(tensor) if wide else tensor).clone()
    return held


def forward(call: Any, *, wide: bool, grads: bool = False, cast: Any = None) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return the output for the same arguments, and the parameters used: in FP32 (`wide`), or as in the script.

    With `cast` the parameters are wide, and autocast has this dtype where the script has FP16.
    """
    module = unwrapped(call.module)
    _check_one_process(module)
    held = _copies(module, wide=wide, grads=grads)
    args, kwargs = (map_tensors(each, _wide) if wide else each for each in (call.args, call.kwargs))
    kind, dtype = call.device.type, cast if wide else call.autocast
    outer = torch.autocast(kind, enabled=False) if dtype is None else torch.autocast(kind, dtype=dtype)
    with unwatched(), _uncompiled(module), torch.set_grad_enabled(grads), outer, _changed_casts(wide, cast) as casts:
        output = _functional_call()(module, held, args, kwargs)
    call.autocast = call.autocast or next((context.fast_dtype for context in casts if context.device == kind), None)
    return output, held


@contextlib.contextmanager
def _changed_casts(wide: bool, cast: Any) -> Iterator[list[Any]]:
    """Disable autocasts that a model enters in its own forward, as with Accelerate, or give them another dtype.

    Yield those that were on.
    """
    held: list[Any] = []
    # Only now: a hook that is there from the start would cost every update.
    patch.before(torch.autocast, "__enter__", _change)
    _changed[:] = [(held, cast)] if wide else []
    try:
        yield held
    finally:
        _changed.clear()
        for context in held:
            if cast is None:
                context._enabled = True
            else:
                context.fast_dtype = torch.float16


def _change(context: Any, *_: Any) -> None:
    if not _changed or not context._enabled:
        return
    held, cast = _changed[0]
    if cast is None:
        context._enabled = False
        held.append(context)
    elif context.fast_dtype == torch.float16:
        context.fast_dtype = cast
        held.append(context)


def first_bad(call: Any, *, wide: bool) -> tuple[bool, str]:
    """Run the forward; return whether its outputs are sane, and the module that returned the first bad number."""
    module = unwrapped(call.module)
    bad: list[str] = []
    handles = []

    def watch(name: str) -> Any:
        def hook(_: Any, args: Any, output: Any) -> None:
            if not bad and not finite.all_sane(tensors_in(output)):
                bad.append(name)

        return hook

    try:
        for name, each in module.named_modules():
            handles.append(each.register_forward_hook(watch(name or type(module).__name__)))
        output, _ = forward(call, wide=wide)
    finally:
        for handle in handles:
            handle.remove()
    return finite.all_sane(tensors_in(output)), bad[0] if bad else ""


def gradients_finite(call: Any, *, wide: bool = True, cast: Any = None) -> bool:
    """Return whether the gradients of the outputs are finite, in FP32 or as in the script; `.grad` is not changed."""
    output, held = forward(call, wide=wide, grads=True, cast=cast)
    wanted = [each for each in held.values() if each.requires_grad]
    ends = [each for each in tensors_in(output) if each.requires_grad and each.is_floating_point()]
    if not ends or not wanted:
        raise CannotRun("no gradient")
    loss = getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.requires_grad:
        total = loss
    else:
        total = torch.stack([_probe(each, wide=wide) for each in ends]).sum()
    found = torch.autograd.grad(total, wanted, allow_unused=True)
    return finite.all_finite(each for each in found if each is not None)


def _probe(end: torch.Tensor, *, wide: bool) -> torch.Tensor:
    # Not a plain sum: for a softmax that is always 1.
    weights = torch.randn(end.shape, device=end.device, dtype=end.dtype)
    if not wide:
        # As small as the gradients of a mean loss: whether FP16 can hold them must not depend on the probe.
        end = end.float()
        weights = weights.float() / (end.numel() * end.detach().abs().nan_to_num().max().clamp(min=1.0))
    return torch.where(torch.isfinite(end), end * weights, torch.zeros_like(end)).sum().float()
