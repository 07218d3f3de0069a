"""Fixes what depends on the dtype of a model that was cast: losses with other targets, averages of its weights.

Without `precision` or `params` asked, nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rung_inside.numerics import fp16_master_weights
from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.knobs import param_dtype

# Losses whose backward needs both sides in one dtype; a script in half precision has half targets.
TWO_SIDED = (
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "kl_div", "cross_entropy"),
    *("binary_cross_entropy_with_logits", "poisson_nll_loss", "soft_margin_loss", "multilabel_soft_margin_loss"),
)


def install(_torch: Any) -> None:
    if not param_dtype.is_asked():
        return
    for name in TWO_SIDED:
        patch.before(torch.nn.functional, name, _match_dtypes)
    if run_state.asked_knob("precision") == "native_fp16":
        patch.wrap(torch.optim.swa_utils.AveragedModel, "update_parameters", _average)


def _match_dtypes(*args: Any, **kwargs: Any) -> Any:
    """Return the arguments with both sides in FP32 if their dtypes differ."""
    sides = [each for each in (*args[:2], kwargs.get("input"), kwargs.get("target")) if isinstance(each, torch.Tensor)]
    dtypes = {side.dtype for side in sides}
    if len(dtypes) < 2 or not dtypes <= set(param_dtype.CASTABLE):
        return None
    full: dict[str, Any] = {name: kwargs[name].float() for name in ("input", "target") if name in kwargs}
    return (*(each.float() for each in args[:2]), *args[2:]), {**kwargs, **full}


def _average(original: Callable[..., Any], average: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    """Average the FP32 values of the weights; small steps would be lost in FP16."""
    held = [] if torch.distributed.is_available() and torch.distributed.is_initialized() else _half_of(model)
    for weight, _ in held:
        weight.data = fp16_master_weights.master(weight)
    try:
        return original(average, model, *args, **kwargs)
    finally:
        for weight, data in held:
            weight.data = data


def _half_of(model: Any) -> list[tuple[Any, Any]]:
    return [(weight, weight.data) for weight in model.parameters() if weight.dtype == torch.float16]
