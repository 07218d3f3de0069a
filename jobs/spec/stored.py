"""Reads specs that were stored. One that today's rules refuse is still read: its job can be shown and cancelled."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from rung.jobs.spec.fields import STORED
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.yaml_reader import path_text

# What a spec needs at least. The command is never run: a refused spec is not launched.
LEAST = {"name": "unreadable", "run": ["false"]}
NAMED = 3


@dataclass(frozen=True)
class StoredSpec:
    """A spec from the store; `refused` says why it cannot be launched, and its refused fields have their defaults."""

    spec: JobSpec
    refused: str = ""


def read_stored(text: str) -> StoredSpec:
    """Return the spec in a JSON text, or raise a ValueError if the text is no JSON object."""
    try:
        return StoredSpec(JobSpec.model_validate_json(text, context=STORED))
    except ValidationError as error:
        try:
            data = json.loads(text)
        except RecursionError:
            data = None
        if not isinstance(data, dict):
            raise ValueError("a stored job file is no mapping") from None
        return StoredSpec(_readable(data, error), _reason(error))


def _readable(data: dict[str, Any], error: ValidationError) -> JobSpec:
    """Return the spec without the fields that are refused; only its name where fields refuse each other."""
    refused = {detail["loc"][0] if detail["loc"] else "" for detail in error.errors()}
    kept = {key: value for key, value in data.items() if key not in refused}
    for fields in (kept, {"name": data.get("name")}):
        try:
            return JobSpec.model_validate({**LEAST, **fields}, context=STORED)
        except ValueError:  # also of text that is no Unicode, whose message cannot be made
            continue
    return JobSpec.model_validate(LEAST)


def _reason(error: ValidationError) -> str:
    problems = [
        f"{path_text(detail['loc'])}: {detail['msg'].removeprefix('Value error, ')}".removeprefix(": ")
        for detail in error.errors()
    ]
    more = f"; and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
    shown = "; ".join(problems[:NAMED])
    return f"its stored job file is refused now: {shown}{more}; cancel it, correct the file and submit it again"
