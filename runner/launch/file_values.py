"""Reads knobs from a job's config files at submit, where the job file does not state them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rung.jobs.model.errors import ConfigFileError
from rung.jobs.model.knobs import Precision
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.knob_spec import KnobSpec
from rung.jobs.spec.precision_names import SWITCHES, script_value_for
from rung.runner.files.work_copy import read_keys

NUMBERS = ("lr", "clip", "growth_interval", "batch", "accumulation")


def with_file_values(spec: JobSpec, workdir: Path) -> JobSpec:
    """Return the job with the knobs that only its config files state; raise ConfigFileError for a missing one."""
    knobs = spec.knobs
    if not knobs.files:
        return spec
    values, stated = read_keys(spec, workdir), knobs.model_fields_set
    names = [name for name in NUMBERS if name in values and name not in stated]
    taken = {name: _number(name, *_first(values[name], name)) for name in names}
    if "precision" not in stated:
        keys = ("precision", *SWITCHES)
        taken |= _precision(knobs, {name: _first(values[name], "precision") for name in keys if name in values})
    known = {name: value for name, value in taken.items() if value is not None}
    return spec.model_copy(update={"knobs": knobs.model_copy(update=known)})


def _first(keys: Mapping[str, Any], name: str) -> tuple[str, Any]:
    """Return the location and value of a knob in the files; several keys for it must agree."""
    (where, value), *others = keys.items()
    for other, another in others:
        if another != value:
            raise ConfigFileError(
                f"{where} is {value!r} and {other} is {another!r}: state knobs.{name} in the job file"
            )
    return where, value


def _number(name: str, where: str, value: Any) -> Any:
    # In many scripts 0 turns clipping off.
    if value is None or (name == "clip" and value in (0, "")):
        return None
    try:
        return getattr(KnobSpec.model_validate({name: value}), name)
    except ValidationError:
        raise ConfigFileError(f"{where}: {value!r} is no {name}; name another key, or state knobs.{name}") from None


def _precision(knobs: KnobSpec, found: Mapping[str, tuple[str, Any]]) -> dict[str, Precision]:
    """Return the precision that a name or the switches in the files mean."""
    if "precision" in found:
        where, value = found["precision"]
        for precision in Precision:
            word = script_value_for(precision, knobs.precision_text, knobs.framework)
            if (type(word), word) == (type(value), value):
                return {"precision": precision}
        raise ConfigFileError(f"{where}: {value!r} stands for no precision; say which in knobs.precision_text")

    switches = [name for name in SWITCHES if name in found]
    if not switches:
        return {}
    return {"precision": next((SWITCHES[name] for name in switches if found[name][1] is True), Precision.FP32)}
