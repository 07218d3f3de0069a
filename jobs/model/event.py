"""The kinds of events in the history of a job, and how each is shown."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class EventKind(StrEnum):
    SUBMITTED = "submitted"
    STATE = "state"
    DECIDED = "decided"
    STARTED = "started"
    FAULT = "fault"
    NOT_TAKEN = "not_taken"
    RECOVERED = "recovered"
    STEPPING_BACK = "stepping_back"
    ENDED = "ended"
    STOPPED = "stopped"
    RETRIED = "retried"
    CANCEL_REQUESTED = "cancel_requested"
    CHECKPOINT = "checkpoint"
    NO_CHECKPOINT = "no_checkpoint"
    QUARANTINED = "quarantined"
    SET_ASIDE = "set_aside"
    MIRRORED = "mirrored"
    NOT_MIRRORED = "not_mirrored"
    UNREACHABLE = "unreachable"
    REACHABLE = "reachable"
    HOST_LOST = "host_lost"
    STALE_GONE = "stale_gone"
    VALIDATING = "validating"
    VALIDATED = "validated"
    UNEXPECTED_ERROR = "stumbled"


Data = Mapping[str, Any]


def _reason(data: Data) -> str:
    pairs = ", ".join(f"{name}={value}" for name, value in data.items())
    return str(data.get("because") or data.get("diagnosis") or pairs)


def _transition(data: Data) -> str:
    return f"{data['from']} -> {data['to']}: {data['reason']}"


def _fault(data: Data) -> str:
    where = f" at step {data['step']}" if data["step"] is not None else ""
    return f"{data['kind']}{where}: {data['evidence']}"


def _checkpoint(data: Data) -> str:
    return f"{data['file']} is {data['verdict']} (step {data['step']}) {data['detail']}".rstrip()


def _command(data: Data) -> str:
    return shlex.join(data["argv"])


def _not_taken(data: Data) -> str:
    return "; ".join(f"{name} asked {pair['asked']}, effective {pair['effective']}" for name, pair in data.items())


@dataclass(frozen=True)
class EventStyle:
    """How an event is shown: its words, its colour, and whether `-f` shows it."""

    text: Callable[[Data], str] = _reason
    colour: str | None = None
    followed: bool = True


_K = EventKind
_FOLLOWED, _HIDDEN = EventStyle(), EventStyle(followed=False)
_BAD, _GOOD, _CHANGE = EventStyle(colour="red"), EventStyle(colour="green"), EventStyle(colour="yellow")

STYLES: dict[str, EventStyle] = {
    _K.SUBMITTED: _FOLLOWED,
    _K.STATE: EventStyle(_transition, followed=False),
    _K.DECIDED: _CHANGE,
    _K.STARTED: EventStyle(_command, followed=False),
    _K.FAULT: EventStyle(_fault, "red"),
    _K.NOT_TAKEN: EventStyle(_not_taken, "red"),
    _K.RECOVERED: _GOOD,
    _K.STEPPING_BACK: _HIDDEN,
    _K.ENDED: _HIDDEN,
    _K.STOPPED: _BAD,
    _K.RETRIED: _FOLLOWED,
    _K.CANCEL_REQUESTED: _HIDDEN,
    _K.CHECKPOINT: EventStyle(_checkpoint),
    _K.NO_CHECKPOINT: _HIDDEN,
    _K.QUARANTINED: _HIDDEN,
    _K.SET_ASIDE: _HIDDEN,
    _K.MIRRORED: _FOLLOWED,
    _K.NOT_MIRRORED: _BAD,
    _K.UNREACHABLE: _CHANGE,
    _K.REACHABLE: _GOOD,
    _K.HOST_LOST: _BAD,
    _K.STALE_GONE: _FOLLOWED,
    _K.VALIDATING: _FOLLOWED,
    _K.VALIDATED: _FOLLOWED,
    _K.UNEXPECTED_ERROR: _BAD,
}


def style_of(kind: str) -> EventStyle:
    """Return how an event is shown; a newer Rung may have written a kind that is unknown here."""
    return STYLES.get(kind, _HIDDEN)
