"""Lists the checkpoints of a job as the store knows them: no host is asked, and no file is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rung.jobs.job import Attempt
from rung.jobs.model.event import EventKind
from rung.recovery.decide.quarantine import QUARANTINED, quarantined
from rung.runner.state.store import Event

NOT_LOOKED_AT = "not looked at"
MOST = 100


@dataclass(frozen=True)
class KnownCheckpoint:
    """A checkpoint that the job reported or that was verified, and what is known of it."""

    name: str
    step: int | None
    attempt: int | None
    verdict: str = NOT_LOOKED_AT
    why: str = ""
    resumed_by: tuple[int, ...] = ()


def known_checkpoints(events: Sequence[Event], attempts: Sequence[Attempt]) -> list[KnownCheckpoint]:
    """Return the checkpoints of a job, those of the latest steps first."""
    found: dict[str, KnownCheckpoint] = {}
    for attempt in attempts:
        for name, step in attempt.saved.items():
            found[name] = KnownCheckpoint(name, step, attempt.number)
    for event in events:
        if event.kind == EventKind.CHECKPOINT:
            name, found_step = str(event.data["file"]), event.data.get("step")
            known = found.get(name, KnownCheckpoint(name, None, event.attempt))
            found[name] = replace(
                known,
                step=found_step if found_step is not None else known.step,
                verdict=str(event.data.get("verdict")),
                why=str(event.data.get("detail", "")),
            )
    for name, mark in quarantined(attempts).items():
        known = found.get(name, KnownCheckpoint(name, None, None))
        found[name] = replace(known, verdict=QUARANTINED, why=mark.why)
    rows = [replace(each, resumed_by=_resumed_by(each.name, attempts)) for each in found.values()]
    return sorted(rows, key=lambda row: (row.step or 0, row.name), reverse=True)[:MOST]


def _resumed_by(name: str, attempts: Sequence[Attempt]) -> tuple[int, ...]:
    return tuple(each.number for each in attempts if each.resumed_from == name)
