"""Turns an engine's description of a container, and the record on the host, into an Observation. Pure.

The exit code is from the engine. Only the record proves that the attempt reached its end.
"""

from __future__ import annotations

import calendar
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rung.jobs.model.engine import EndedBy
from rung.runner.seams.engine import Observation, Presence

TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d{1,9})?", re.ASCII)
# A shell reports a signal as 128 and its number.
SIGNALS = range(129, 128 + 65)
NO_RECORD = "the container is gone and left no completion record"
STRANGE_RECORD = (
    "the container is gone, and its completion record is no plain file: the job has put something else in its place, "
    "which is not read"
)
# Exit codes, and the seconds in which an end may be: until the year 9999.
CODES, SECONDS = range(-(1 << 31), 1 << 32), range(253402300800)


class Status(StrEnum):
    ABSENT = "absent"
    CREATED = "created"
    RUNNING = "running"
    ENDED = "ended"


# The engine's states; a container that is being removed has ended, and a paused one will continue.
STATUS = {
    "created": Status.CREATED,
    "running": Status.RUNNING,
    "paused": Status.RUNNING,
    "restarting": Status.RUNNING,
    "exited": Status.ENDED,
    "dead": Status.ENDED,
    "removing": Status.ENDED,
}


@dataclass(frozen=True)
class ContainerState:
    """A container, as the engine just described it."""

    status: Status
    exit_code: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    out_of_memory: bool = False


@dataclass(frozen=True)
class Record:
    """What the wrapper left on the host."""

    began: bool = False
    exit_code: int | None = None
    ended_at: float | None = None
    # There is something else than a plain file in its place.
    strange: bool = False

    @property
    def done(self) -> bool:
        return self.exit_code is not None


def parse_inspect(container: Mapping[str, Any] | None) -> ContainerState:
    """Parse the engine's description of a container."""
    if container is None:
        return ContainerState(Status.ABSENT)
    state = container.get("State")
    fields = state if isinstance(state, dict) else {}
    code = fields.get("ExitCode")
    return ContainerState(
        status=_status(fields.get("Status")),
        exit_code=code if isinstance(code, int) and code in CODES else None,
        started_at=parse_time(fields.get("StartedAt")),
        ended_at=parse_time(fields.get("FinishedAt")),
        out_of_memory=fields.get("OOMKilled") is True,
    )


def parse_list(containers: Iterable[Mapping[str, Any]]) -> dict[str, Status]:
    """Return the status of each container in an engine's list, by its name."""
    listed = ((each.get("Names"), _status(each.get("State"))) for each in containers)
    named = ((name, status) for names, status in listed if isinstance(names, list) for name in names)
    return {name.lstrip("/"): status for name, status in named if isinstance(name, str)}


def _status(word: Any) -> Status:
    return STATUS.get(word, Status.RUNNING) if isinstance(word, str) else Status.RUNNING


def parse_time(text: Any) -> float | None:
    """Return an engine's time in seconds; None for the year 1, which means never, and for what is no time."""
    found = TIME.match(text) if isinstance(text, str) else None
    if found is None or found[1] == "0001":
        return None
    numbers = tuple(int(found[number]) for number in range(1, 7))
    try:
        return calendar.timegm(numbers) + float(found[7] or 0)
    except ValueError:
        return None


def parse_record(text: str) -> Record:
    """Parse the output of the record script: nothing, `began`, `strange`, or `done` and the record itself."""
    status, _, record = text.partition("\n")
    if status != "done":
        return Record(began=status in ("began", "strange"), strange=status == "strange")
    try:
        data = json.loads(record)
        code, ended_at = data["exit_code"], data["ended_at"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return Record(began=True)
    if not _is_number(code, CODES) or not _is_number(ended_at, SECONDS):
        return Record(began=True)
    return Record(True, code, float(ended_at))


def _is_number(value: Any, bounds: range) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in bounds


def outcome(state: ContainerState, record: Record) -> Observation:
    """Return how an attempt ended whose container has ended or is gone."""
    code = state.exit_code if state.status is Status.ENDED else record.exit_code
    ended_at = state.ended_at or record.ended_at
    if ended_at is not None and state.started_at is not None:
        # For a container that ends at once, an engine may record the end before the start.
        ended_at = max(ended_at, state.started_at)
    if not record.done:
        why = STRANGE_RECORD if record.strange else NO_RECORD
        detail = why if code is None else f"{why}; its exit code is {code}"
        return Observation(Presence.LOST, detail=detail, started_at=state.started_at, ended_at=ended_at)
    signal = code - 128 if code is not None and code in SIGNALS else None
    return Observation(
        Presence.ENDED,
        exit_code=None if signal is not None else code,
        signal=signal,
        detail="its container ran out of memory" if state.out_of_memory else "",
        started_at=state.started_at,
        ended_at=ended_at,
        ended_by=EndedBy.OUT_OF_MEMORY if state.out_of_memory else EndedBy.ITSELF if signal is None else None,
    )
