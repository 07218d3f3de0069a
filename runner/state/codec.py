"""Converts between rows of the store and frozen data: jobs, attempts, verdicts on checkpoints."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any
from weakref import WeakValueDictionary

from rung.jobs.job import Attempt, Job, Outcome, Verdict
from rung.jobs.model.checkpoint_verdict import CheckpointVerdict
from rung.jobs.model.engine import DOCKER, ENGINES, PROCESS, EndedBy
from rung.jobs.model.fault import Fault
from rung.jobs.model.gpu import Gpu, Member
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.saturation import Saturation
from rung.jobs.model.state import JobState
from rung.jobs.model.trial import Trial
from rung.jobs.spec_text import SpecText

_NUMBERS = ("metrics", "latest", "throughput")
# What may hold a number that is not finite.
_INFINITE = ("loss", "effective", *_NUMBERS)
# Fields whose name in the store is older than their name in the code.
_STORED_NAMES = {"residence": "stay"}
_NAMES = tuple(field.name for field in fields(Attempt))
_KEYS = tuple(_STORED_NAMES.get(name, name) for name in _NAMES)
_values_of = attrgetter(*_NAMES)


# A spec never changes, and the controller reads those of active jobs again and again. Those of jobs that nobody holds
# any more are forgotten.
_specs: WeakValueDictionary[str, SpecText] = WeakValueDictionary()


def _spec(text: str) -> SpecText:
    found = _specs.get(text)
    if found is None:
        found = _specs[text] = SpecText(text)
    return found


def job_from_row(row: sqlite3.Row) -> Job:
    spec, state = _spec(row["spec"]), JobState(row["state"])
    # Only what waits to be launched shows that its spec is refused now, so the others are not parsed for it.
    refused = spec.refused if state in (JobState.QUEUED, JobState.RECOVERING) else ""
    # Both are parsed when they are read.
    unparsed: dict[str, Any] = {"spec": spec, "refused": spec}
    return Job(
        id=row["id"],
        state=state,
        reason=refused or row["reason"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        knobs=Knobs.from_dict(json.loads(row["knobs"])),
        settled=row["settled"],
        cancel_requested=bool(row["cancel"]),
        **unparsed,
    )


def attempt_to_dict(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt as plain values. A number that is not finite becomes text: JSON cannot hold it."""
    data = _plain_values(attempt)
    for name in _INFINITE:
        data[name] = finite_or_text(data[name])
    return data


def _plain_values(attempt: Attempt) -> dict[str, Any]:
    data = dict(zip(_KEYS, _values_of(attempt), strict=True))
    data["asked"] = attempt.asked.to_dict()
    data["fault"] = attempt.fault.to_dict() if attempt.fault else None
    data["outcome"] = attempt.outcome.value
    data["verdict"] = attempt.verdict.value if attempt.verdict else None
    data["gpus"] = [gpu.to_dict() for gpu in attempt.gpus]
    data["members"] = [member.to_dict() for member in attempt.members]
    data["engine"] = attempt.engine.name
    data["trial"] = attempt.trial.to_dict() if attempt.trial else None
    data["saturation"] = attempt.saturation.to_dict() if attempt.saturation else None
    return data


def finite_or_text(value: Any) -> Any:
    """Return the data with text in place of every number that is not finite, at any depth."""
    if isinstance(value, Mapping):
        return {name: finite_or_text(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_or_text(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# Made once, because `dumps` makes one for each text that must have no NaN.
_ENCODER = json.JSONEncoder(allow_nan=False)


def attempt_to_json(attempt: Attempt) -> str:
    # Progress is kept once a second for every run. Its numbers are nearly always finite, so they are looked through
    # only when JSON refuses them.
    try:
        return _ENCODER.encode(_plain_values(attempt))
    except ValueError:
        return json.dumps(attempt_to_dict(attempt), allow_nan=False)


def attempt_from_row(row: sqlite3.Row) -> Attempt:
    data = json.loads(row["data"])
    data["asked"] = Knobs.from_dict(data["asked"])
    data["fault"] = Fault.from_dict(data["fault"]) if data["fault"] else None
    data["outcome"] = Outcome(data["outcome"])
    # An older store has only the word `recovered`.
    word = Verdict.RECOVERED if data.pop("recovered", None) else data.get("verdict")
    data["verdict"] = Verdict(word) if word else None
    data["loss"] = None if data["loss"] is None else float(data["loss"])
    for name in _NUMBERS:
        # An attempt from an older store has fewer of them.
        data[name] = {key: float(value) for key, value in data.get(name, {}).items()}
    for name in ("skipped", "undone"):
        data[name] = tuple((rung, reason) for rung, reason in data[name])
    data["gpus"] = tuple(Gpu.from_dict(gpu) for gpu in data.get("gpus", ()))
    data["members"] = tuple(Member.from_dict(member) for member in data.get("members", ()))
    # In an older store the image tells it.
    data["engine"] = ENGINES[data.get("engine") or (DOCKER if data.get("image") else PROCESS).name]
    data["ended_by"] = EndedBy(data["ended_by"]) if data.get("ended_by") else None
    data["trial"] = Trial.from_dict(data["trial"]) if data.get("trial") else None
    data["saturation"] = Saturation.from_dict(data["saturation"]) if data.get("saturation") else None
    data["links"] = tuple(str(link) for link in data.get("links", ()))
    data["readings"] = tuple((int(step), float(loss)) for step, loss in data.get("readings", ()))
    if data.get("checkpoint_from"):
        host, residence = data["checkpoint_from"]
        data["checkpoint_from"] = (str(host), int(residence))
    for name, stored in _STORED_NAMES.items():
        if stored in data:
            data[name] = data.pop(stored)
    return Attempt(**data)


def verdict_to_dict(verdict: CheckpointVerdict) -> dict[str, Any]:
    data = {"verdict": verdict.verdict, "step": verdict.step, "detail": verdict.detail}
    return {**data, "kind": verdict.kind} if verdict.kind else data


def verdict_from_row(row: sqlite3.Row) -> CheckpointVerdict:
    data = json.loads(row["data"])
    detail, kind = str(data.get("detail", "")), str(data.get("kind", ""))
    return CheckpointVerdict(data.get("verdict"), data.get("step"), detail, kind)
