"""Keeps the spec of a stored job as text, and parses it only when somebody asks for the spec.

Parsing needs pydantic and all rules of a job file, which take longer to load than most commands take to answer. What
lists and histories show of a spec is read from its text without them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from rung.jobs.model.knobs import Knobs, Precision, first_knobs

if TYPE_CHECKING:
    from rung.jobs.spec.job_spec import JobSpec
    from rung.jobs.spec.stored import StoredSpec

SHOWN = ("name", "priority", "success", "knobs")

Class = TypeVar("Class")


@dataclass(frozen=True)
class ShownSpec:
    """What lists and histories show of a spec."""

    name: str
    priority: int
    success: dict[str, Any] | None
    knob_mode: str
    # Those of the first attempt.
    knobs: Knobs


class SpecText:
    """A spec as the store has it: the JSON that Rung wrote when the job was submitted."""

    def __init__(self, text: str) -> None:
        """Raise a ValueError if the text is no JSON object; whether it is a good spec is seen when it is parsed."""
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("a stored job file is no mapping")
        # Not all of it is kept: a list of thousands of jobs holds as many of these.
        self._text, self._kept = text, {name: data[name] for name in SHOWN if name in data}

    @cached_property
    def _stored(self) -> StoredSpec:
        # Imported only here: it takes longer than everything else that a list of jobs needs.
        from rung.jobs.spec.stored import read_stored

        return read_stored(self._text)

    @property
    def spec(self) -> JobSpec:
        return self._stored.spec

    @property
    def refused(self) -> str:
        """Return why today's rules refuse it; empty: they do not."""
        return self._stored.refused

    @property
    def shown(self) -> ShownSpec:
        try:
            return _shown(self._kept)
        except (LookupError, TypeError, ValueError, AttributeError):  # an older Rung, or somebody else, wrote it
            return shown_of(self.spec)


def shown_of(spec: JobSpec) -> ShownSpec:
    success = spec.success.model_dump() if spec.success else None
    return ShownSpec(spec.name, spec.priority, success, spec.knobs.mode, spec.knobs.knobs())


def _shown(data: dict[str, Any]) -> ShownSpec:
    """Return it from what this Rung writes; any error: only the rules of a job file can tell."""
    name, priority, success, knobs = data["name"], data["priority"], data["success"], data["knobs"]
    if not (name and isinstance(name, str) and type(priority) is int and isinstance(success, dict | None)):
        raise TypeError
    values = {**knobs, "precision": Precision(knobs["precision"]) if knobs["precision"] else None}
    return ShownSpec(name, priority, success, knobs["mode"], first_knobs(knobs["mode"], values))


class _Parsed:
    """An attribute of a job that may be given as SpecText: then it is parsed when it is read."""

    def __init__(self, name: str) -> None:
        # What was parsed is kept beside the text: a controller reads it for every line of every run.
        self._name, self._parsed = name, f"parsed {name}"

    def __get__(self, job: Any, owner: type | None = None) -> Any:
        if job is None:
            return self
        known: dict[str, Any] = job.__dict__
        try:
            return known[self._parsed]
        except KeyError:
            given = known[self._name]
        value = known[self._parsed] = getattr(given, self._name) if isinstance(given, SpecText) else given
        return value

    def __set__(self, job: Any, value: Any) -> None:
        known: dict[str, Any] = job.__dict__
        known[self._name] = value
        known.pop(self._parsed, None)


def parsed_when_read(*names: str) -> Any:
    """Decorate a dataclass whose fields of these names may be given as SpecText. Its other users see no difference."""

    def decorate(made: type[Class]) -> type[Class]:
        for name in names:
            setattr(made, name, _Parsed(name))
        return made

    return decorate
