"""The knobs, which are the settings of a training that Rung may change, and the names of the rungs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any


class Precision(StrEnum):
    AMP_FP16 = "amp_fp16"
    NATIVE_FP16 = "native_fp16"
    BF16 = "bf16"
    FP32 = "fp32"


class RungName(StrEnum):
    RAISE_CLIP = "raise_clip"
    LOWER_LR = "lower_lr"
    INCREASE_GROWTH_INTERVAL = "increase_growth_interval"
    NATIVE_FP16 = "native_fp16"
    CLAMP_CONSTANTS = "clamp_constants"
    FP32_MODULES = "fp32_modules"
    BF16 = "bf16"
    FP32 = "fp32"
    # Not on the default ladder; used if named, or with `ladder: auto`.
    FP32_PARAMS = "fp32_params"
    SKIP_DATA = "skip_data"
    LOWER_BATCH = "lower_batch"


@dataclass(frozen=True)
class Knobs:
    """The settings asked of one attempt. None: Rung does not set it (for `clip`, if the job states its knobs: off)."""

    lr: float | None = None
    clip: float | None = None
    growth_interval: int | None = None
    # None: the precision that the script chooses.
    precision: Precision | None = None
    batch: int | None = None
    accumulation: int | None = None
    # "fp32": trainable parameters are FP32, whatever dtype the script gave them; the precision stays.
    params: str | None = None
    # "FIRST-LAST": numbers of the updates to skip, both included.
    skip: str | None = None
    # "clamp": numbers that do not fit a tensor's 16-bit dtype become the limit of that dtype.
    constants: str | None = None
    # The places that compute in FP32 while the rest stays in FP16, separated by commas: "head.norm,loss".
    fp32_modules: str | None = None
    # What matmuls and convolutions of FP32 numbers compute in, on GPUs that have a choice: "tf32" or "strict".
    matmul: str | None = None

    def to_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in KNOB_NAMES}
        return {**values, "precision": self.precision.value if self.precision else None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Knobs:
        return cls(**{**data, "precision": Precision(data["precision"]) if data["precision"] else None})

    def but(self, **changes: Any) -> Knobs:
        return replace(self, **changes)

    def changes_from(self, before: Knobs) -> dict[str, tuple[Any, Any]]:
        """Return what differs from `before`, as name: (before, after)."""
        old, new = before.to_dict(), self.to_dict()
        return {name: (old[name], new[name]) for name in KNOB_NAMES if old[name] != new[name]}


KNOB_NAMES: tuple[str, ...] = tuple(field.name for field in fields(Knobs))
# torch's own defaults, for job files that do not state these knobs.
DEFAULTS: dict[str, Any] = {"growth_interval": 2000, "precision": Precision.AMP_FP16}
# Knobs that only change how fast a rung runs: a rung has taken effect without them.
SPEED_ONLY = frozenset({"matmul"})
# The two words for a knob without a value: Rung leaves it to the script, or it is turned off.
NOT_SET, OFF = "not set", "off"
# Without a value these are off. So is `clip`, but with zero-edit the script may clip by itself.
_OFF_WITHOUT_VALUE = frozenset({"skip", "constants", "fp32_modules"})


def first_knobs(mode: str, values: Mapping[str, Any]) -> Knobs:
    """Return the knobs of the first attempt; with zero-edit, knobs that are not stated stay the script's own."""
    stated = {name: values[name] for name in KNOB_NAMES if values.get(name) is not None}
    if "fp32_modules" in stated:
        stated["fp32_modules"] = ",".join(stated["fp32_modules"])
    return Knobs(**(stated if mode == "zero-edit" else DEFAULTS | stated))


def no_value_text(name: str, *, zero_edit: bool) -> str:
    """Return the word for a knob that is asked without a value."""
    return OFF if name in _OFF_WITHOUT_VALUE or (name == "clip" and not zero_edit) else NOT_SET


def same_value(asked: Any, effective: Any) -> bool:
    """Return whether a live value is the one asked, up to the rounding of printed floats."""
    if isinstance(asked, (int, float)) and isinstance(effective, (int, float)):
        # Scripts print six digits with %g, off by up to 5e-6; every rung changes a knob by more.
        return math.isclose(asked, effective, rel_tol=1e-5)
    return bool(asked == effective)


def not_taken(asked: Knobs, effective: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the knobs whose live value is not the one asked, as name: (asked, effective).

    A knob that the job did not report is not in `effective` and proves nothing. `growth_interval` has no
    meaning without a scaler, so it is not compared in other precisions.
    """
    if not effective:
        return {}
    wanted = asked.to_dict()
    if asked.precision not in (None, Precision.AMP_FP16):
        wanted.pop("growth_interval")
    return {
        name: (value, effective[name])
        for name, value in wanted.items()
        if name in effective and value is not None and not same_value(value, effective[name])
    }
