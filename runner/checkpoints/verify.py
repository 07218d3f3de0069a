"""Owns finding and verifying a job's checkpoints. Only the job's own Python opens the files, never the controller."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from rung.jobs.job import Attempt
from rung.jobs.model.errors import EngineError, HostRefused, HostUnreachable
from rung.jobs.model.terminal_text import clean
from rung.jobs.spec.checkpoint_spec import step_in_name
from rung.recovery.decide.checkpoint_choice import (
    UNVERIFIED,
    Checkpoint,
    choose_checkpoint,
    estimated_step,
    recorded_step,
    resume_candidates,
)
from rung.runner.seams.engine import Engine, FileEntry, Request

# One look into a checkpoint costs an import of torch; several files share it.
AT_ONCE = 8
# 7.8 GB/s is what a scan was seen to do; this is room for checkpoints on slow disks.
SECONDS = 900.0

Verdicts = Mapping[str, Mapping[str, Any]]


def find_checkpoints(
    engine: Engine, request: Request, pattern: str, verdicts: Verdicts, attempts: Sequence[Attempt] = ()
) -> list[Checkpoint]:
    """Return the job's checkpoints with the verdicts known so far."""
    entries = engine.list_files(request, pattern)
    return [checkpoint_of(entry, verdicts.get(entry.fingerprint, {}), attempts) for entry in entries]


def checkpoint_of(entry: FileEntry, said: Mapping[str, Any], attempts: Sequence[Attempt] = ()) -> Checkpoint:
    step, whose = _step(entry, said, attempts)
    verdict, detail, kind = said.get("verdict"), str(said.get("detail", "")), str(said.get("kind", ""))
    found = Checkpoint(entry.name, step, entry.written_at, verdict, detail)
    return replace(found, step_from=whose, kind=kind, size=entry.size)


def _step(entry: FileEntry, said: Mapping[str, Any], attempts: Sequence[Attempt]) -> tuple[int, str]:
    """Return a checkpoint's step and whose word it is: the job's own first, then the content's, then the name's."""
    saved = recorded_step(entry.name, entry.written_at, attempts)
    if saved is not None:
        return saved, "saved"
    step, named = said.get("step"), step_in_name(entry.name)
    if isinstance(step, int):
        return step, "content"
    if named is not None:
        return named, "name"
    return estimated_step(entry.written_at, attempts), "time"


def verify_enough(
    engine: Engine, request: Request, pattern: str, attempts: Sequence[Attempt], limit: int | None, verdicts: Verdicts
) -> dict[str, dict[str, Any]]:
    """Look into checkpoints, newest first, until one is healthy and older than the fault; return the new verdicts.

    Returns once every file that could be chosen has been looked at, however many calls of the job's Python that takes.
    """
    known = {name: dict(said) for name, said in verdicts.items()}
    while True:
        entries = {entry.name: entry for entry in engine.list_files(request, pattern)}
        found = [checkpoint_of(entry, known.get(entry.fingerprint, {}), attempts) for entry in entries.values()]
        best = choose_checkpoint(found, attempts, limit).checkpoint
        candidates = resume_candidates(found, attempts, limit)
        newer = candidates[: candidates.index(best)] if best else candidates
        unseen = [checkpoint.name for checkpoint in newer if checkpoint.verdict is None]
        if not unseen:
            break
        for name, said in look_into(engine, request, unseen[:AT_ONCE]).items():
            known[entries[name].fingerprint] = said
    return {name: said for name, said in known.items() if name not in verdicts}


def look_into(
    engine: Engine, request: Request, names: Sequence[str], *, sampled: bool = False
) -> dict[str, dict[str, Any]]:
    """Have the job's own Python look into these files; a file it says nothing of counts as not verified.

    A `sampled` look is the cheap one of a listing: at all of them, and at samples of their numbers.
    """
    if not names:
        return {}
    paths = [str(request.checkpoint_dir / name) for name in names]
    manner = "--sampled" if sampled else "--first-healthy"
    argv = [python_of(request.argv), "-m", "rung_inside.verify", manner, *paths]
    # It trains nothing: what is patched into a training would only speak in its name.
    request = replace(request, env={**request.env, "RUNG_MODE": "off"})
    try:
        code, output, errors = engine.run(argv, request, SECONDS)
    except (HostUnreachable, HostRefused):
        raise  # nothing was learned of the files; they are looked into when the host answers
    except EngineError as error:
        return _unverified(names, str(error))
    said = {name: verdict for name, verdict in _verdicts(output).items() if name in names}
    if said:
        return said
    why = (errors.strip().splitlines() or [f"exit code {code}"])[-1]
    return _unverified(names, why)


def _unverified(names: Sequence[str], why: str) -> dict[str, dict[str, Any]]:
    return {name: {"verdict": UNVERIFIED, "step": None, "detail": clean(why)} for name in names}


def _verdicts(output: str) -> dict[str, dict[str, Any]]:
    """Read the verdict lines; anything else that the job's Python printed is passed over."""
    found: dict[str, dict[str, Any]] = {}
    for line in output.splitlines():
        try:
            said = json.loads(line)
            found[PurePath(said["path"]).name] = {
                "verdict": clean(str(said["verdict"])),
                "step": said["step"] if isinstance(said["step"], int) else None,
                "detail": clean(str(said["detail"])),
                **({"kind": clean(str(said["kind"]))[:20]} if said.get("kind") else {}),
            }
        except (ValueError, TypeError, KeyError):
            continue
    return found


def python_of(argv: Sequence[str]) -> str:
    """Return the Python that the job runs with: the command's own, or the first on its PATH."""
    first = PurePath(argv[0]).name
    return argv[0] if re.fullmatch(r"python[\d.]*", first) else "python3"
