"""Reads which values a script uses by itself, before any rung changed them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rung.jobs.job import Attempt
from rung.jobs.model.knobs import Knobs, Precision


def read_script_values(attempts: Iterable[Attempt]) -> Knobs:
    """Return the script's own values, each from the first attempt that reported it without a requested value."""
    found: dict[str, Any] = {}
    for attempt in attempts:
        for name, value in _valid_values(attempt.effective).items():
            if getattr(attempt.asked, name) is None:
                found.setdefault(name, value)
    return Knobs(**found)


def _valid_values(effective: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reported values that are valid; a job can report anything."""
    values = {
        "lr": _positive(effective.get("lr")),
        "clip": _positive(effective.get("clip")),
        "growth_interval": _count(effective.get("growth_interval")),
        "precision": _precision(effective.get("precision")),
        "batch": _count(effective.get("batch")),
        "accumulation": _count(effective.get("accumulation")),
    }
    return {name: value for name, value in values.items() if value is not None}


def _positive(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < float("inf") else None


def _count(value: Any) -> int | None:
    number = _positive(value)
    return int(number) if number is not None and number >= 1 and number == int(number) else None


def _precision(value: Any) -> Precision | None:
    """Return the precision of a job; a mixture with FP16 autocast counts as AMP."""
    if not isinstance(value, str):
        return None
    if value in set(Precision):
        return Precision(value)
    return Precision.AMP_FP16 if "autocast_float16" in value else None
