"""Sets what a run computes in (dtypes of parameters, autocast, the loss scaler), and names what is in force.

amp_fp16     trainable parameters FP32, autocast to FP16, a GradScaler
bf16         trainable parameters FP32, autocast to BF16, no scaler
fp32         all parameters FP32, no autocast, no scaler
native_fp16  all parameters FP16, no autocast, no scaler; the optimizer needs Fp32Shadows
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from rung_inside.numerics.nested_tensors import map_tensors

AUTOCAST = {"amp_fp16": torch.float16, "bf16": torch.bfloat16}
# torch 2.4 has one function for all kinds of devices.
_HAS_KINDS = hasattr(torch, "get_autocast_dtype")
FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def cast_parameters(model: torch.nn.Module, precision: str | None, *, halve_inputs: bool = True) -> None:
    """Give the parameters the dtype that a precision needs; None leaves them as the script made them."""
    if precision == "native_fp16":
        model.half()
        if halve_inputs:
            model.register_forward_pre_hook(_halve_inputs)
        model.register_forward_hook(_float_outputs)
    elif precision == "fp32":
        model.float()
    elif precision in AUTOCAST:
        # Only trainable ones: frozen FP16 weights under FP32 adapters save memory and do no harm.
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.is_floating_point():
                parameter.data = parameter.data.float()


def _halve_inputs(_model: torch.nn.Module, inputs: Any) -> Any:
    return convert(inputs, torch.float16)


def _float_outputs(_model: torch.nn.Module, _inputs: Any, outputs: Any) -> Any:
    # The loss needs FP32 in every precision: a sum of squares soon passes 65504.
    return convert(outputs, torch.float32)


def convert(value: Any, dtype: torch.dtype, sources: tuple[torch.dtype, ...] = FLOATING) -> Any:
    """Return `value` with every tensor in it that has one of the dtypes `sources` as `dtype`."""
    return map_tensors(value, lambda tensor: tensor.to(dtype) if tensor.dtype in sources else tensor)


@contextlib.contextmanager
def autocast(device_type: str, precision: str | None) -> Iterator[None]:
    """Autocast if this precision does."""
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
    """Return the dtype of autocast now; None if it is off."""
    if _HAS_KINDS:
        return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None
    if device_type == "cpu":
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


def name_precision(dtypes: set[Any], trainable: set[Any], autocast: Any, scaled: bool) -> str:
    """Return the name of the precision that these dtypes, autocast and scaler make; others are spelled out."""
    if autocast is None and not scaled:
        if dtypes == {torch.float16}:
            return "native_fp16"
        if dtypes == {torch.float32}:
            return "fp32"
    elif trainable <= {torch.float32}:
        for name, dtype in AUTOCAST.items():
            if autocast == dtype and scaled == (name == "amp_fp16"):
                return name
    parts = ["+".join(sorted(str(dtype).replace("torch.", "") for dtype in dtypes)) or "no", "parameters"]
    parts.append(f"autocast_{str(autocast).replace('torch.', '')}" if autocast else "no_autocast")
    parts.append("scaler" if scaled else "no_scaler")
    return "_".join(parts)
