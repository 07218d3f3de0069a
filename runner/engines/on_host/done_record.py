"""Keeps on this machine how an attempt on a host ended: once it is written, the host is not asked again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from rung.jobs.model.engine import EndedBy
from rung.jobs.model.errors import EngineError
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.paths import AttemptPaths
from rung.runner.seams.engine import Observation, Presence


def read_done(paths: AttemptPaths) -> Observation | None:
    """Return the outcome of an attempt; None while there is none."""
    try:
        return from_dict(json.loads(paths.done.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise EngineError(f"{paths.done}: cannot be read: {error}") from None


def write_done(paths: AttemptPaths, end: Observation) -> None:
    draft = paths.done.with_suffix(".draft")
    try:
        with draft.open("w", encoding="utf-8") as file:
            json.dump(to_dict(end), file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(paths.done)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def to_dict(end: Observation) -> dict[str, Any]:
    return {
        "presence": end.presence.value,
        "exit_code": end.exit_code,
        "signal": end.signal,
        "detail": end.detail,
        "started_at": end.started_at,
        "ended_at": end.ended_at,
        "ended_by": end.ended_by,
        "node": end.node,
        "gpus": [gpu.to_dict() for gpu in end.gpus],
    }


def from_dict(data: Mapping[str, Any]) -> Observation:
    ended_by = EndedBy(data["ended_by"]) if data.get("ended_by") else None
    gpus = tuple(Gpu.from_dict(each) for each in data.get("gpus", ()))
    return Observation(**{**data, "presence": Presence(data["presence"]), "ended_by": ended_by, "gpus": gpus})
