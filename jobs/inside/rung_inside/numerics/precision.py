"""Owns what the run computes in: parameter dtypes, autocast and the loss scaler; and reads back what is really so.

amp_fp16     trainable parameters FP32, autocast to FP16, a GradScaler
bf16         trainable parameters FP32, autocast to BF16, no scaler
fp32         all parameters FP32, no autocast, no scaler
native_fp16  all parameters FP16, no autocast, no scaler; the optimizer needs native.Compensated
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

AUTOCAST = {"amp_fp16": torch.float16, "bf16": torch.bfloat16}


def cast_parameters(model: torch.nn.Module, precision: str | None) -> None:
    """Give the parameters the dtype their precision needs; None leaves them as the script made them."""
    if precision == "native_fp16":
        model.half()
        model.register_forward_pre_hook(_halve_inputs)
        model.register_forward_hook(_float_outputs)
    elif precision == "fp32":
        model.float()
    elif precision in AUTOCAST:
        # Only trainable ones: a frozen FP16 body under FP32 adapters is a sound way to save memory.
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.is_floating_point():
                parameter.data = parameter.data.float()


def _halve_inputs(_model: torch.nn.Module, inputs: Any) -> Any:
    return convert(inputs, torch.float16)


def _float_outputs(_model: torch.nn.Module, _inputs: Any, outputs: Any) -> Any:
    # The loss is worth FP32 in every precision; a sum of squares passes 65504 soon.
    return convert(outputs, torch.float32)


def convert(value: Any, dtype: torch.dtype) -> Any:
    """Return `value` with every floating-point tensor in it as `dtype`, through lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if type(value) in (list, tuple):
        return type(value)(convert(item, dtype) for item in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(convert(item, dtype) for item in value))
    if type(value) is dict:
        return {key: convert(item, dtype) for key, item in value.items()}
    return value


@contextlib.contextmanager
def autocast(device_type: str, precision: str | None) -> Iterator[None]:
    """Compute in the lower precision where this one autocasts."""
    dtype = AUTOCAST.get(precision or "")
    if dtype is None:
        yield
    else:
        with torch.autocast(device_type, dtype=dtype):
            yield


def make_scaler(device_type: str, precision: str | None, wanted: Mapping[str, Any]) -> Any:
    """Return the loss scaler, switched off in every precision but amp_fp16."""
    enabled = precision == "amp_fp16"
    options = {name: wanted[name] for name in ("growth_interval", "init_scale") if wanted.get(name) is not None}
    scaler = getattr(torch.amp, "GradScaler", None)
    if scaler is not None:
        return scaler(device_type, enabled=enabled, **options)
    # torch before 2.3 scales on CUDA alone.
    return torch.cuda.amp.GradScaler(enabled=enabled and device_type == "cuda", **options)


def live_autocast(device_type: str) -> torch.dtype | None:
    """Return the dtype autocast computes in at this very moment, None when it is off."""
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None
    if device_type == "cpu":
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


def read_precision(model: torch.nn.Module, autocast_dtype: torch.dtype | None, scaler: Any) -> str:
    """Name the precision that the live objects amount to; a combination that is none of ours is spelled out."""
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    trainable = {p.dtype for p in model.parameters() if p.is_floating_point() and p.requires_grad}
    if autocast_dtype is None and not scaler.is_enabled():
        if dtypes == {torch.float16}:
            return "native_fp16"
        if dtypes == {torch.float32}:
            return "fp32"
    elif trainable <= {torch.float32}:
        for name, dtype in AUTOCAST.items():
            if autocast_dtype == dtype and scaler.is_enabled() == (name == "amp_fp16"):
                return name
    return _spelled_out(dtypes, autocast_dtype, scaler)


def _spelled_out(dtypes: set[torch.dtype], autocast_dtype: torch.dtype | None, scaler: Any) -> str:
    parts = ["+".join(sorted(str(dtype).replace("torch.", "") for dtype in dtypes)) or "no"]
    parts.append("parameters")
    parts.append(f"autocast_{str(autocast_dtype).replace('torch.', '')}" if autocast_dtype else "no_autocast")
    parts.append("scaler" if scaler.is_enabled() else "no_scaler")
    return "_".join(parts)
