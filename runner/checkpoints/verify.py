"""Finds and verifies the checkpoints of a job. Only the job's own Python opens the files, never the controller."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath

from rung.jobs.job import Attempt
from rung.jobs.model.checkpoint_verdict import NOT_EXAMINED, CheckpointVerdict
from rung.jobs.model.errors import EngineError, RunCutShort
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

# Each call imports torch once; several files share that.
AT_ONCE = 8
# The exit codes of a container that somebody ended: TERM and KILL.
KILLED = (128 + 15, 128 + 9)
# How often a check is tried that is ended for its own sake, such as for memory. A file of so much of its size, or a
# larger one, needs as much, and is not tried.
TRIES, AS_LARGE = 2, 0.9
# A scan reached 7.8 GB/s; slow disks need more time.
SECONDS = 900.0

# No training makes more.
MOST_STEPS = 1 << 53

# By the fingerprint of the file.
Verdicts = Mapping[str, CheckpointVerdict]
# A new verdict on a file, by its fingerprint.
NewVerdict = tuple[str, CheckpointVerdict]


def checkpoint_of(entry: FileEntry, verdict: CheckpointVerdict, attempts: Sequence[Attempt] = ()) -> Checkpoint:
    step, step_from = _step(entry, verdict, attempts)
    found = Checkpoint(entry.name, step, entry.written_at, verdict.verdict, verdict.detail)
    return replace(found, step_from=step_from, kind=verdict.kind, size=entry.size)


def _step(entry: FileEntry, verdict: CheckpointVerdict, attempts: Sequence[Attempt]) -> tuple[int, str]:
    """Return the step of a checkpoint and its source: the job's log first, then the content, the name, the time."""
    saved = recorded_step(entry.name, entry.written_at, attempts)
    if saved is not None:
        return saved, "saved"
    if verdict.step is not None:
        return verdict.step, "content"
    named = step_in_name(entry.name)
    if named is not None:
        return named, "name"
    return estimated_step(entry.written_at, attempts), "time"


def verify_enough(
    engine: Engine,
    request: Request,
    listing: Callable[[], Sequence[FileEntry]],
    attempts: Sequence[Attempt],
    limit: int | None,
    verdicts: Verdicts,
) -> Generator[NewVerdict, None, list[Checkpoint]]:
    """Verify checkpoints, newest first, until one is healthy and older than the fault; yield each new verdict.

    Ends when every file that could be chosen has a verdict, however many calls of the job's Python that takes, and
    returns all checkpoints. An error takes nothing back of what was yielded before. `listing` returns the files that
    may be checkpoints; it is called again after each call of the Python, because a run may write meanwhile.
    """
    known = dict(verdicts)
    while True:
        entries = {entry.name: entry for entry in listing()}
        found = [
            checkpoint_of(entry, known.get(entry.fingerprint, NOT_EXAMINED), attempts) for entry in entries.values()
        ]
        best = choose_checkpoint(found, attempts, limit).checkpoint
        candidates = resume_candidates(found, attempts, limit)
        newer = candidates[: candidates.index(best)] if best else candidates
        unseen = [checkpoint.name for checkpoint in newer if checkpoint.verdict is None]
        if not unseen:
            return found
        try:
            verdicts = _examine(engine, request, unseen[:AT_ONCE], sampled=False)
        except RunCutShort as error:
            least = entries[unseen[0]].size * AS_LARGE
            verdicts = _unverified([name for name in unseen if entries[name].size >= least], str(error))
        for name, verdict in verdicts.items():
            known[entries[name].fingerprint] = verdict
            yield entries[name].fingerprint, verdict


def keep_all(
    verifying: Generator[NewVerdict, None, list[Checkpoint]], keep: Callable[[NewVerdict], None]
) -> list[Checkpoint]:
    """Keep each verdict as it comes, and return the checkpoints that the last listing has found."""
    while True:
        try:
            keep(next(verifying))
        except StopIteration as end:
            found: list[Checkpoint] = end.value
            return found


def verify_files(
    engine: Engine, request: Request, names: Sequence[str], *, sampled: bool = False
) -> dict[str, CheckpointVerdict]:
    """Let the job's own Python examine these files; when it reports nothing, all of them count as not verified.

    With `sampled`, for listings, it examines all files but only samples of their numbers. An error of a host is raised:
    then nothing is known about the files. On this machine, a Python that cannot be run is an answer.
    """
    try:
        return _examine(engine, request, names, sampled=sampled) if names else {}
    except RunCutShort as error:
        return _unverified(names[:1], str(error))


def _examine(engine: Engine, request: Request, names: Sequence[str], *, sampled: bool) -> dict[str, CheckpointVerdict]:
    """Examine files in their order. RunCutShort: the check of the first one was ended each time it was tried."""
    paths = [str(request.checkpoint_dir / name) for name in names]
    mode = "--sampled" if sampled else "--first-healthy"
    argv = [python_of(request.argv), "-m", "rung_inside.verify", mode, *paths]
    # This process trains nothing, so the patches for a training stay off. RUNG_RUN names the script and so its classes.
    request = replace(request, env={**request.env, "RUNG_MODE": "off", "RUNG_RUN": " ".join(request.argv)})
    try:
        code, output, errors = _run(engine, argv, request)
    except RunCutShort as error:
        verdicts = {name: verdict for name, verdict in _parse_verdicts(error.output).items() if name in names}
        if verdicts:
            return verdicts
        raise
    except EngineError as error:
        if request.container is not None:
            raise
        return _unverified(names, str(error))
    verdicts = {name: verdict for name, verdict in _parse_verdicts(output).items() if name in names}
    if verdicts:
        return verdicts
    if request.container is not None and code in KILLED:
        raise EngineError(f"{engine.host}: the check of {', '.join(names[:3])} was killed there (exit code {code})")
    why = (errors.strip().splitlines() or [f"exit code {code}"])[-1]
    return _unverified(names, why)


def _run(engine: Engine, argv: Sequence[str], request: Request) -> tuple[int, str, str]:
    """Run a check; one that is ended for its own sake is tried again."""
    for _ in range(TRIES - 1):
        with suppress(RunCutShort):
            return engine.run(argv, request, SECONDS)
    return engine.run(argv, request, SECONDS)


def _unverified(names: Sequence[str], why: str) -> dict[str, CheckpointVerdict]:
    return {name: CheckpointVerdict(UNVERIFIED, detail=clean(why)) for name in names}


def _parse_verdicts(output: str) -> dict[str, CheckpointVerdict]:
    """Parse the verdict lines; anything else that the job's Python printed is ignored."""
    found: dict[str, CheckpointVerdict] = {}
    for line in output.splitlines():
        try:
            data = json.loads(line)
            found[PurePath(data["path"]).name] = CheckpointVerdict(
                verdict=clean(str(data["verdict"])),
                step=data["step"] if isinstance(data["step"], int) and 0 <= data["step"] < MOST_STEPS else None,
                detail=clean(str(data["detail"])),
                kind=clean(str(data.get("kind") or ""))[:20],
            )
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
    return found


def python_of(argv: Sequence[str]) -> str:
    """Return the Python of the job: the one in its command, or else the first on its PATH."""
    first = PurePath(argv[0]).name
    return argv[0] if re.fullmatch(r"python[\d.]*", first) else "python3"
