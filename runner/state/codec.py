"""Owns how jobs and attempts look as rows: JSON in, frozen data out."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

from rung.jobs.job import Attempt, Job, Outcome
from rung.jobs.model.fault import Fault
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec

_NUMBERS = ("metrics", "latest", "throughput")


@lru_cache(maxsize=1024)
def _spec(text: str) -> JobSpec:
    """Return the spec in a row. It never changes, and the controller asks for every job's several times a second."""
    return JobSpec.model_validate_json(text)


def job_from_row(row: sqlite3.Row) -> Job:
    return Job(
        id=row["id"],
        spec=_spec(row["spec"]),
        state=JobState(row["state"]),
        reason=row["reason"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        knobs=Knobs.from_dict(json.loads(row["knobs"])),
        settled=row["settled"],
        cancel_requested=bool(row["cancel"]),
    )


def attempt_to_dict(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt as plain values; JSON has no word for a loss that is not finite, so that is text."""
    data = {field.name: getattr(attempt, field.name) for field in fields(Attempt)}
    data["asked"] = attempt.asked.to_dict()
    data["fault"] = attempt.fault.to_dict() if attempt.fault else None
    data["outcome"] = attempt.outcome.value
    data["gpus"] = [gpu.to_dict() for gpu in attempt.gpus]
    data["loss"] = finite_or_text(attempt.loss)
    for name in _NUMBERS:
        data[name] = finite_or_text(data[name])
    data["effective"] = finite_or_text(attempt.effective)
    return data


def finite_or_text(value: Any) -> Any:
    """Return plain data, at any depth, with text where JSON has no number."""
    if isinstance(value, Mapping):
        return {name: finite_or_text(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_or_text(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def attempt_to_json(attempt: Attempt) -> str:
    return json.dumps(attempt_to_dict(attempt), allow_nan=False)


def attempt_from_row(row: sqlite3.Row) -> Attempt:
    data = json.loads(row["data"])
    data["asked"] = Knobs.from_dict(data["asked"])
    data["fault"] = Fault.from_dict(data["fault"]) if data["fault"] else None
    data["outcome"] = Outcome(data["outcome"])
    data["loss"] = None if data["loss"] is None else float(data["loss"])
    for name in _NUMBERS:
        # An attempt of an older store has fewer of them.
        data[name] = {key: float(value) for key, value in data.get(name, {}).items()}
    for name in ("skipped", "undone"):
        data[name] = tuple((rung, reason) for rung, reason in data[name])
    data["gpus"] = tuple(Gpu.from_dict(gpu) for gpu in data.get("gpus", ()))
    if data.get("checkpoint_from"):
        host, stay = data["checkpoint_from"]
        data["checkpoint_from"] = (str(host), int(stay))
    return Attempt(**data)
