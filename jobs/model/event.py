"""The kinds of events in the history of a job, and how each is shown."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from rung.jobs.model.knobs import OFF

Data = Mapping[str, Any]


def reason(data: Data) -> str:
    pairs = ", ".join(f"{name}={value}" for name, value in data.items())
    return str(data.get("because") or data.get("diagnosis") or pairs)


def _transition(data: Data) -> str:
    return f"{data['from']} -> {data['to']}: {data['reason']}"


def _submitted(data: Data) -> str:
    start = data.get("from")
    python = f", python {data['python']}" if data.get("python") else ""
    return f"name={data['name']}{python}" + (f", from step {start['step']} of {start['job']}" if start else "")


def _fault(data: Data) -> str:
    where = f" at step {data['step']}" if data["step"] is not None else ""
    return f"{data['kind']}{where}: {data['evidence']}"


def _checkpoint(data: Data) -> str:
    return f"{data['file']} is {data['verdict']} (step {data['step']}) {data['detail']}".rstrip()


def _command(data: Data) -> str:
    return shlex.join(data["argv"])


def _not_taken(data: Data) -> str:
    return "; ".join(
        f"{name} asked {pair['asked']}, effective {_live(pair['effective'])}" for name, pair in data.items()
    )


def _live(value: Any) -> Any:
    return OFF if value is None else value


class EventKind(StrEnum):
    """The stored name, whether `-f` shows the event, in which colour, and how its data is described."""

    followed: bool
    colour: str | None
    describe: Callable[[Data], str]

    def __new__(
        cls, value: str, followed: bool, colour: str | None = None, describe: Callable[[Data], str] = reason
    ) -> EventKind:
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.followed, kind.colour, kind.describe = followed, colour, describe
        return kind

    SUBMITTED = "submitted", True, None, _submitted
    STATE = "state", False, None, _transition
    DECIDED = "decided", True, "yellow"
    STARTED = "started", False, None, _command
    FAULT = "fault", True, "red", _fault
    INTERRUPTED = "interrupted", True, "yellow"
    NO_HANDS = "no_hands", True, "red"
    NOT_RESUMED = "not_resumed", True, "red"
    NOT_WHOLE = "not_whole", True, "yellow"
    NOT_TAKEN = "not_taken", True, "red", _not_taken
    SATURATED = "saturated", True, "yellow"
    SAMPLED = "sampled", True, "yellow"
    SURVIVED = "survived", True
    RECOVERED = "recovered", True, "green"
    NOT_LEARNING = "not_learning", True, "red"
    TRIALS = "trials", True, "cyan"
    STEPPING_BACK = "stepping_back", False
    LEVEL = "level", True, "yellow"
    ENDED = "ended", False
    STOPPED = "stopped", True, "red"
    RETRIED = "retried", True
    CANCEL_REQUESTED = "cancel_requested", False
    CHECKPOINT = "checkpoint", True, None, _checkpoint
    NO_CHECKPOINT = "no_checkpoint", False
    QUARANTINED = "quarantined", False
    SET_ASIDE = "set_aside", False
    PRUNED = "pruned", True
    MIRRORED = "mirrored", True
    NOT_MIRRORED = "not_mirrored", True, "red"
    UNREACHABLE = "unreachable", True, "yellow"
    REACHABLE = "reachable", True, "green"
    HOST_LOST = "host_lost", True, "red"
    WAITING_FOR_HOST = "waiting_for_host", True, "yellow"
    STALE_GONE = "stale_gone", True
    VALIDATING = "validating", True
    VALIDATED = "validated", True
    UNEXPECTED_ERROR = "stumbled", True, "red"


class Occasion(StrEnum):
    """What people can be told about by a message: the names in `notify` of a job file and in notify.yaml."""

    RECOVERING = "recovering"
    NEEDS_YOU = "needs_you"
    FAILED = "failed"
    SUCCEEDED = "succeeded"
    HOST_LOST = "host_lost"
    HOST_BACK = "host_back"


def find_kind(name: str) -> EventKind | None:
    """Return a kind by its stored name; a newer Rung may have written one that is unknown here."""
    return next((kind for kind in EventKind if kind == name), None)
