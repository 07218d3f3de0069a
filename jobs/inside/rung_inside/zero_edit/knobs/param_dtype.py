"""Owns the dtypes of a model in the precision asked: its parameters, and what goes in and comes out.

Parameters keep their identity, only their data changes. Without a precision or params asked, nothing is touched.

    native_fp16  all FP16 (batch norms stay FP32, their statistics need it), outputs FP32
    fp32         all FP32
    bf16         trainable parameters FP32, under autocast to BF16
    params=fp32  trainable parameters FP32, everything else as the script has it
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import torch

from rung_inside.numerics import fp16_master_weights, precision
from rung_inside.patching import patch
from rung_inside.zero_edit import run_state

SIXTEEN = (torch.float16, torch.bfloat16)
PLAIN = (*SIXTEEN, torch.float32)
_settled = run_state.Weakly()


def install(_torch: Any) -> None:
    if not asked():
        return
    torch.nn.modules.module.register_module_forward_pre_hook(_match_inputs)
    if run_state.asked("precision") == "fp32":
        patch.wrap(torch.Tensor, "half", _half)
        patch.wrap(torch.Tensor, "to", _keep_full)
        patch.wrap(torch.Tensor, "type", _keep_full)
    parallel = torch.nn.parallel.DistributedDataParallel
    # It hooks into the parameters' gradients, which a change of dtype would undo.
    patch.before(parallel, "__init__", _before_parallel)


def _keep_full(original: Callable[..., Any], tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """Make FP32 of what a model's forward casts to FP16 by itself."""
    if getattr(run_state.inside, "root", False):
        args = tuple(torch.float32 if each is torch.float16 else each for each in args)
        kwargs = {name: torch.float32 if each is torch.float16 else each for name, each in kwargs.items()}
    return original(tensor, *args, **kwargs)


def _half(original: Callable[..., Any], tensor: Any, *args: Any, **kwargs: Any) -> Any:
    return tensor.float() if getattr(run_state.inside, "root", False) else original(tensor, *args, **kwargs)


def asked() -> bool:
    """Tell whether any dtype is ours to set."""
    return run_state.asked("precision") is not None or run_state.asked("params") is not None


def _before_parallel(_parallel: Any, module: Any, *_: Any, **__: Any) -> None:
    settle(module)


def settle(module: Any) -> None:
    """Give a model's parameters and buffers the dtypes asked, once."""
    if not asked() or module in _settled or any(map(_unmade, module.parameters())):
        return
    _settled.add(module)
    wanted = run_state.asked("precision")
    for part in module.modules():
        for name, tensor in (*part._parameters.items(), *part._buffers.items()):
            dtype = _dtype_for(wanted, part, tensor) if tensor is not None and tensor.is_floating_point() else None
            if dtype is not None and tensor.dtype != dtype:
                _cast(part, name, tensor, dtype)


def _unmade(parameter: Any) -> bool:
    """Tell whether a lazy parameter has no shape yet."""
    return bool(torch.nn.parameter.is_lazy(parameter))


def _dtype_for(wanted: Any, part: Any, tensor: Any) -> Any:
    # Shards and other tensors that are more than their data have owners of their own.
    if tensor.dtype not in PLAIN or type(tensor.data) is not torch.Tensor or type(tensor).__name__ == "FlatParameter":
        return None
    if wanted == "fp32":
        return torch.float32
    if wanted == "native_fp16":
        norm = isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
        return torch.float32 if norm else torch.float16
    return torch.float32 if tensor.requires_grad else None


def _cast(part: Any, name: str, tensor: Any, dtype: Any) -> None:
    if name in part._buffers:
        part._buffers[name] = tensor.to(dtype)
        return
    value, gradient = tensor.data, tensor.grad
    tensor.grad = None
    tensor.data = value.to(dtype)
    if gradient is not None:
        tensor.grad = gradient.to(dtype)
    if dtype == torch.float16:
        fp16_master_weights.adopt(tensor, value)


def _match_inputs(module: Any, inputs: Any) -> Any:
    """Give a layer its inputs in the dtype of its own parameters, where no autocast would."""
    own = next((each for each in module._parameters.values() if each is not None and each.dtype in PLAIN), None)
    if own is None or not _differs(inputs, own.dtype) or precision.live_autocast(own.device.type) is not None:
        return None
    return patch.quietly(_convert, inputs, own.dtype)


def _differs(inputs: Any, dtype: Any) -> bool:
    return any(
        _differs(each, dtype)
        if isinstance(each, (list, tuple))
        else isinstance(each, torch.Tensor) and each.dtype in PLAIN and each.dtype != dtype
        for each in inputs
    )


def _convert(value: Any, dtype: Any) -> Any:
    """Return the value with the floating-point tensors in it as `dtype`; models of frameworks return mappings."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.dtype in PLAIN else value
    if isinstance(value, MutableMapping) and type(value) is not dict:
        changed = copy.copy(value)
        for key, item in value.items():
            changed[key] = _convert(item, dtype)
        return changed
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made: Any = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(made, field.name, _convert(getattr(value, field.name), dtype))
        return made
    if type(value) in (list, tuple):
        return type(value)(_convert(item, dtype) for item in value)
    if type(value) is dict:
        return {key: _convert(item, dtype) for key, item in value.items()}
    return precision.convert(value, dtype)


def enter(module: Any, args: Any, kwargs: Any) -> Any:
    """Return a root's arguments as its precision wants them."""
    settle(module)
    wanted = run_state.asked("precision")
    if wanted == "native_fp16":
        return _convert(args, torch.float16), _convert(kwargs, torch.float16)
    if wanted == "fp32":
        return _convert(args, torch.float32), _convert(kwargs, torch.float32)
    return None


def leave(result: Any) -> Any:
    """Return a root's result in FP32 where its precision is ours: the loss is worth it."""
    wanted = run_state.asked("precision")
    return _convert(result, torch.float32) if wanted in ("native_fp16", "fp32") else None


@contextlib.contextmanager
def computing(module: Any) -> Iterator[None]:
    """Autocast to BF16 where that is asked and the script has no autocast of its own."""
    parameter = next(module.parameters(), None) if run_state.asked("precision") == "bf16" else None
    if parameter is None or precision.live_autocast(parameter.device.type) is not None:
        yield
        return
    with torch.autocast(parameter.device.type, dtype=torch.bfloat16):
        yield
