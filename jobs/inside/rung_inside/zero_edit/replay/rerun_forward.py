"""Owns running one forward pass of the script's again, with nothing of the run changed by it.

Parameters and buffers are stood in for by copies, the generators of chance are put back, no gradient is touched, and no
other rank is needed. A forward that cannot be run alone is not run.
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
from rung_inside.patching import patch
from rung_inside.zero_edit.hooks.forward import unseen

# While a forward is run in FP32: where the autocasts that wanted otherwise are put.
_suspended: list[list[Any]] = []
HALVES = (torch.float16, torch.bfloat16)


class CannotRun(Exception):
    """This forward needs more than one process, or more than we know of."""


def bare(module: Any) -> Any:
    """Return the module itself without the wrappers that speak to other ranks or compile it."""
    for _ in range(8):
        inner = getattr(module, "_orig_mod", None)
        if inner is None and type(module).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = module.module
        if inner is None:
            return module
        module = inner
    return module


def _must_be_alone(module: Any) -> None:
    for each in module.modules():
        if type(each).__name__ in ("FullyShardedDataParallel", "SyncBatchNorm", "DeepSpeedEngine"):
            raise CannotRun(type(each).__name__)


@contextlib.contextmanager
def untouched(device: torch.device) -> Iterator[None]:
    """Put back chance, warnings and compilation as they were."""
    numpy = sys.modules.get("numpy.random")
    chance, state = random.getstate(), numpy.get_state() if numpy else None
    devices = [device.index or 0] if device.type == "cuda" else []
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=devices):
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(chance)
        if numpy:
            numpy.set_state(state)


@contextlib.contextmanager
def _uncompiled(module: Any) -> Iterator[None]:
    """Have modules that were compiled in place run as they are written."""
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


def _stand_ins(module: Any, *, wide: bool, grads: bool) -> dict[str, torch.Tensor]:
    held: dict[str, torch.Tensor] = {}
    for name, tensor in module.named_parameters():
        stand_in = tensor.detach()
        stand_in = _wide(stand_in) if wide else stand_in
        held[name] = stand_in.requires_grad_() if grads and tensor.requires_grad else stand_in
    for name, tensor in module.named_buffers():
        # A running mean moves in place with every forward: ours moves in a copy.
        held[name] = (_wide(tensor) if wide else tensor).clone()
    return held


def forward(call: Any, *, wide: bool, grads: bool = False) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return what the module returns for the same arguments, and its parameters: in FP32, or as the script had it."""
    module = bare(call.module)
    _must_be_alone(module)
    held = _stand_ins(module, wide=wide, grads=grads)
    args, kwargs = (finite.mapped(each, _wide) if wide else each for each in (call.args, call.kwargs))
    kind, dtype = call.device.type, call.autocast
    cast = torch.autocast(kind, enabled=False) if wide or dtype is None else torch.autocast(kind, dtype=dtype)
    with unseen(), _uncompiled(module), torch.set_grad_enabled(grads), cast, _own_casts(off=wide) as own:
        output = _functional_call()(module, held, args, kwargs)
    call.autocast = call.autocast or next((context.fast_dtype for context in own if context.device == kind), None)
    return output, held


@contextlib.contextmanager
def _own_casts(*, off: bool) -> Iterator[list[Any]]:
    """Keep off the autocasts that a model enters in its own forward, as Accelerate has it; yields which were on."""
    held: list[Any] = []
    _suspended[:] = [held] if off else []
    try:
        yield held
    finally:
        _suspended.clear()
        for context in held:
            context._enabled = True


def _keep_off(context: Any, *_: Any) -> None:
    if _suspended and context._enabled:
        context._enabled = False
        _suspended[0].append(context)


def install() -> None:
    patch.before(torch.autocast, "__enter__", _keep_off)


def first_bad(call: Any, *, wide: bool) -> tuple[bool, str]:
    """Run the forward; return whether its outputs are sane, and the module out of which the first bad number came."""
    module = bare(call.module)
    bad: list[str] = []
    handles = []

    def look(name: str) -> Any:
        def hook(_: Any, args: Any, output: Any) -> None:
            if not bad and not finite.all_sane(finite.tensors_in(output)):
                bad.append(name)

        return hook

    try:
        for name, each in module.named_modules():
            handles.append(each.register_forward_hook(look(name or type(module).__name__)))
        output, _ = forward(call, wide=wide)
    finally:
        for handle in handles:
            handle.remove()
    return finite.all_sane(finite.tensors_in(output)), bad[0] if bad else ""


def gradients_finite(call: Any) -> bool:
    """Tell whether the gradients of the outputs are finite in FP32; `.grad` is not touched."""
    output, held = forward(call, wide=True, grads=True)
    wanted = [each for each in held.values() if each.requires_grad]
    ends = [each for each in finite.tensors_in(output) if each.requires_grad and each.is_floating_point()]
    if not ends or not wanted:
        raise CannotRun("no gradient")
    loss = getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.requires_grad:
        total = loss
    else:
        total = torch.stack([_probe(each).float() for each in ends]).sum()
    found = torch.autograd.grad(total, wanted, allow_unused=True)
    return finite.all_finite(each for each in found if each is not None)


def _probe(end: torch.Tensor) -> torch.Tensor:
    # Not a plain sum: that of a softmax is 1, whatever its inputs are.
    weights = torch.randn(end.shape, device=end.device, dtype=end.dtype)
    return torch.where(torch.isfinite(end), end * weights, torch.zeros_like(end)).sum()
