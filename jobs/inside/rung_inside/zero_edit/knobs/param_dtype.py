"""Casts a model to the precision asked: its parameters, its inputs and its outputs.

Parameters keep their identity; only their data changes. Without `precision` or `params` asked, nothing changes.

    native_fp16  all FP16 (batch norms stay FP32, their statistics need it), outputs FP32
    fp32         all FP32
    bf16         trainable parameters FP32, under autocast to BF16
    params=fp32  trainable parameters FP32, everything else as the script has it
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import torch

from rung_inside.numerics import fp16_master_weights, precision
from rung_inside.patching import patch
from rung_inside.places import fp16_places
from rung_inside.zero_edit import run_state

HALF_DTYPES = (torch.float16, torch.bfloat16)
CASTABLE = (*HALF_DTYPES, torch.float32)
_cast_models = run_state.WeakList()


def install(_torch: Any) -> None:
    if not is_asked():
        return
    torch.nn.modules.module.register_module_forward_pre_hook(_match_inputs)
    if run_state.asked_knob("precision") == "fp32":
        patch.wrap(torch.Tensor, "half", _half)
        patch.wrap(torch.Tensor, "to", _keep_fp32)
        patch.wrap(torch.Tensor, "type", _keep_fp32)
    parallel = torch.nn.parallel.DistributedDataParallel
    # It hooks into the gradients of the parameters; a later change of dtype would undo that.
    patch.before(parallel, "__init__", _before_parallel)


def _keep_fp32(original: Callable[..., Any], tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """Cast to FP32 where the forward of a model casts to FP16."""
    if get_ident() in run_state.in_root:
        args = tuple(torch.float32 if each is torch.float16 else each for each in args)
        kwargs = {name: torch.float32 if each is torch.float16 else each for name, each in kwargs.items()}
    return original(tensor, *args, **kwargs)


def _half(original: Callable[..., Any], tensor: Any, *args: Any, **kwargs: Any) -> Any:
    return tensor.float() if get_ident() in run_state.in_root else original(tensor, *args, **kwargs)


def is_asked() -> bool:
    """Return whether a knob asks for a dtype."""
    return run_state.asked_knob("precision") is not None or run_state.asked_knob("params") is not None


def _before_parallel(_parallel: Any, module: Any, *_: Any, **__: Any) -> None:
    cast_model(module)


def cast_model(module: Any) -> None:
    """Give a model's parameters and buffers the dtypes asked, once."""
    if not is_asked() or module in _cast_models or any(map(_is_lazy, module.parameters())):
        return
    _cast_models.add(module)
    wanted = run_state.asked_knob("precision")
    for part in module.modules():
        for name, tensor in (*part._parameters.items(), *part._buffers.items()):
            dtype = _dtype_for(wanted, part, tensor) if tensor is not None and tensor.is_floating_point() else None
            if dtype is not None and tensor.dtype != dtype:
                _cast(part, name, tensor, dtype)


def _is_lazy(parameter: Any) -> bool:
    """Return whether a parameter has no shape yet."""
    return bool(torch.nn.parameter.is_lazy(parameter))


def _dtype_for(wanted: Any, part: Any, tensor: Any) -> Any:
    # Other code owns shards and tensors that are more than their data.
    is_plain = type(tensor.data) is torch.Tensor and type(tensor).__name__ != "FlatParameter"
    if tensor.dtype not in CASTABLE or not is_plain:
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
        fp16_master_weights.set_master(tensor, value)


def _match_inputs(module: Any, inputs: Any) -> Any:
    """Give a layer its inputs in the dtype of its parameters, unless autocast does."""
    first = next((each for each in module._parameters.values() if each is not None and each.dtype in CASTABLE), None)
    if first is None or not _differs(inputs, first.dtype) or precision.live_autocast(first.device.type) is not None:
        return None
    return patch.quietly(_convert, inputs, first.dtype)


def _differs(inputs: Any, dtype: Any) -> bool:
    return any(
        _differs(each, dtype)
        if isinstance(each, (list, tuple))
        else isinstance(each, torch.Tensor) and each.dtype in CASTABLE and each.dtype != dtype
        for each in inputs
    )


def _convert(value: Any, dtype: Any) -> Any:
    return precision.convert(value, dtype, CASTABLE)


def cast_inputs(module: Any, args: Any, kwargs: Any) -> Any:
    """Return the arguments of a root module in the precision asked."""
    cast_model(module)
    wanted = run_state.asked_knob("precision")
    if wanted == "native_fp16":
        # A model whose own code computes in FP32 takes its inputs as they are.
        if fp16_places.is_place(module):
            return None
        return _convert(args, torch.float16), _convert(kwargs, torch.float16)
    if wanted == "fp32":
        return _convert(args, torch.float32), _convert(kwargs, torch.float32)
    return None


def cast_outputs(result: Any) -> Any:
    """Return the result of a root module in FP32, which the loss needs."""
    wanted = run_state.asked_knob("precision")
    return _convert(result, torch.float32) if wanted in ("native_fp16", "fp32") else None


@contextlib.contextmanager
def bf16_autocast(module: Any) -> Iterator[None]:
    """Autocast to BF16 if that is asked and the script does not autocast."""
    parameter = next(module.parameters(), None) if run_state.asked_knob("precision") == "bf16" else None
    if parameter is None or precision.live_autocast(parameter.device.type) is not None:
        yield
        return
    with torch.autocast(parameter.device.type, dtype=torch.bfloat16):
        yield
