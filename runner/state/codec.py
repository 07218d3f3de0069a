"""Converts between rows of the store and frozen data: jobs, attempts, verdicts on checkpoints."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter, is_
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
ATTEMPT_FIELDS = tuple(field.name for field in fields(Attempt))


def _each_to_dict(values: Sequence[Any]) -> list[Any]:
    return [value.to_dict() for value in values]


# How the values of some fields are made plain.
_MADE_PLAIN: Mapping[str, Callable[[Any], Any]] = {
    "asked": Knobs.to_dict,
    "outcome": attrgetter("value"),
    "engine": attrgetter("name"),
    "gpus": _each_to_dict,
    "members": _each_to_dict,
    "verdict": lambda verdict: verdict.value if verdict else None,
    **dict.fromkeys(("fault", "trial", "saturation"), lambda value: value.to_dict() if value else None),
}

# The fields between these two are of progress: they change with nearly every line of a log.
_FIRST, _AFTER = map(ATTEMPT_FIELDS.index, ("effective", "healthy_loss"))
PROGRESS = ATTEMPT_FIELDS[_FIRST:_AFTER]


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


def _plain_values(attempt: Attempt, names: Sequence[str] = ATTEMPT_FIELDS) -> dict[str, Any]:
    data, made = attempt.__dict__, _MADE_PLAIN
    return {_STORED_NAMES.get(name, name): made[name](data[name]) if name in made else data[name] for name in names}


def finite_or_text(value: Any) -> Any:
    """Return the data with text in place of every number that is not finite, at any depth."""
    if isinstance(value, Mapping):
        return {name: finite_or_text(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_or_text(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# Made once, because `dumps` makes one for each text that must have no NaN.
_ENCODER = json.JSONEncoder(allow_nan=False)


def fields_to_json(attempt: Attempt, names: Sequence[str]) -> str:
    """Return some fields of an attempt as JSON; raise a ValueError where a number is not finite."""
    return _ENCODER.encode(_plain_values(attempt, names))


def attempt_to_json(attempt: Attempt) -> str:
    # Progress is kept once a second for every run. Its numbers are nearly always finite, so they are looked through
    # only when JSON refuses them.
    try:
        return fields_to_json(attempt, ATTEMPT_FIELDS)
    except ValueError:
        return json.dumps(attempt_to_dict(attempt), allow_nan=False)


class _Kept:
    """The text of some fields, one for each job."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._values_of: Callable[[Attempt], tuple[Any, ...]] = attrgetter(*names)
        self.known: dict[str, tuple[tuple[Any, ...], str]] = {}

    def text(self, attempt: Attempt) -> str:
        values, known = self._values_of(attempt), self.known.get(attempt.job_id)
        # Not only equal: 1 and 1.0 are, and their texts differ.
        if known is None or not all(map(is_, known[0], values)):
            known = self.known[attempt.job_id] = (values, fields_to_json(attempt, self._names)[1:-1])
        return known[1]


class AttemptTexts:
    """Makes the texts of attempts that are written again with each bit of progress, as `attempt_to_json` does.

    Only the fields of progress become JSON each time. The text of the others is kept as long as they are the same
    objects.
    """

    def __init__(self) -> None:
        self._before = _Kept(ATTEMPT_FIELDS[:_FIRST])
        self._after = _Kept(ATTEMPT_FIELDS[_AFTER:])

    def keep_only(self, job_ids: Collection[str]) -> None:
        """Forget the texts of all other jobs."""
        for part in (self._before, self._after):
            part.known = {job_id: known for job_id, known in part.known.items() if job_id in job_ids}

    def of(self, attempt: Attempt) -> str:
        try:
            progress = fields_to_json(attempt, PROGRESS)[1:-1]
            return f"{{{self._before.text(attempt)}, {progress}, {self._after.text(attempt)}}}"
        except ValueError:
            return attempt_to_json(attempt)  # a number is not finite


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
