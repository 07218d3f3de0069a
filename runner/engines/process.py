"""Runs attempts as process groups on this machine, which survive the controller.

The folder of an attempt holds who claimed it, which group runs, and how it ended. A pid alone proves nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rung.jobs.model.engine import EndedBy
from rung.jobs.model.errors import EngineError
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.claimed_process import boot, forget_claim, is_alive, read_claim, read_record
from rung.runner.engines.forked_wrapper import fork_wrapper
from rung.runner.files.fingerprint import is_hidden, local_entry
from rung.runner.files.inside import WRAPPER
from rung.runner.files.transfer import clear
from rung.runner.files.work_copy import make_copy
from rung.runner.hosts.cpu_cores import choose_cores, cores_in_use
from rung.runner.hosts.nvidia_smi import GPU_QUERY, parse_gpus
from rung.runner.seams.engine import FileEntry, Observation, Presence, Request
from rung.runner.state.home import umask_of_jobs

# Forking the wrapper takes milliseconds; a machine that needs longer than this is in trouble.
START_SECONDS = 30.0
_STARTING = threading.Lock()


class ProcessEngine:
    """Runs attempts on the machine of the controller."""

    host = "localhost"

    def start(self, request: Request, secrets: Mapping[str, str]) -> None:
        paths = request.paths
        try:
            paths.folder.mkdir(parents=True, exist_ok=True)
            request.checkpoint_dir.mkdir(parents=True, exist_ok=True)
            if request.source is not None:
                make_copy(request.source, request.cwd, request.edits, paths.home)
            _write(paths.request, request.to_dict())
            _start_wrapper(paths, request.limits.get("cpus"), {**request.env, **secrets})
        # ValueError: a secret with a character that no environment can contain.
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise EngineError(f"{paths.folder}: the attempt could not be started: {error}") from None

    def observe(self, paths: AttemptPaths) -> Observation:
        claim = read_claim(paths.folder)
        if claim is None:
            return Observation(Presence.ABSENT)
        alive = is_alive(claim)
        # Read after the check of the process: a wrapper that ended in between has left its record.
        done = read_record(f"{paths.folder}/done.json")
        if done is not None:
            forget_claim(paths.folder)
            end = Observation(Presence.ENDED, done["exit_code"], done["signal"], ended_at=done["ended_at"])
            itself = EndedBy.ITSELF if done["exit_code"] is not None else None
            return replace(end, started_at=claim["claimed_at"], ended_by=itself)
        if alive:
            return Observation(Presence.RUNNING, started_at=claim["claimed_at"])
        if claim["boot"] == boot():
            subprocess.run([sys.executable, "-I", str(WRAPPER), "--end", str(paths.folder)], check=False)
        if paths.stop.exists() and not paths.running.exists():
            return Observation(Presence.ENDED, None, signal.SIGTERM, "stopped before the command ran")
        detail = "the process is gone and left no completion record"
        rebooted = EndedBy.NODE_FAILURE if claim["boot"] != boot() else None
        return Observation(Presence.LOST, detail=detail, started_at=claim["claimed_at"], ended_by=rebooted)

    def signs_of_end(self, paths: AttemptPaths) -> tuple[str, ...]:
        claim = read_claim(paths.folder)
        return (str(paths.done), *([f"/proc/{claim['pid']}"] if claim else []))

    def stop(self, paths: AttemptPaths, *, force: bool) -> None:
        claim, running = read_claim(paths.folder), read_record(paths.running)
        if claim and not running:
            return  # about to run; the next call finds the group
        # While the wrapper that claimed the attempt lives, the recorded group is its child's and nobody else's.
        if claim and running and is_alive(claim) and (force or not paths.stop.exists()):
            _signal_group(running["group"], signal.SIGKILL if force else signal.SIGTERM)
        paths.folder.mkdir(parents=True, exist_ok=True)
        paths.stop.touch()

    def ask_for_stacks(self, paths: AttemptPaths) -> None:
        claim = read_claim(paths.folder)
        if not claim or not is_alive(claim):
            return
        command = [sys.executable, "-I", str(WRAPPER), "--stacks", str(paths.folder)]
        try:
            subprocess.run(command, check=False, timeout=START_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            raise EngineError(f"{paths.folder}: its stacks could not be asked for: {error}") from None

    def kill_unannounced(self, paths: AttemptPaths) -> None:
        """Kill the attempt without a mark, as a failing machine would. Used by drills."""
        claim, running = read_claim(paths.folder), read_record(paths.running)
        if claim and running and is_alive(claim):
            _signal_group(running["group"], signal.SIGKILL)

    def run(self, argv: Sequence[str], request: Request, timeout: float) -> tuple[int, str, str]:
        try:
            done = subprocess.run(
                list(argv),
                # The attempt's copy exists only after its start.
                cwd=request.cwd if request.source is None or request.cwd.is_dir() else request.source,
                env=dict(request.env),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise EngineError(f"{argv[0]}: could not be run: {error}") from None
        return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")

    def list_files(self, request: Request, pattern: str) -> list[FileEntry]:
        folder, found = request.checkpoint_dir, []
        try:
            for path in folder.glob(pattern) if folder.is_dir() else ():
                with suppress(FileNotFoundError):
                    ours = path in request.paths.reserved or is_hidden(path.name)
                    entry = None if ours else local_entry(path, sampled=True)
                    found += [entry] if entry is not None else []
        except OSError as error:
            raise EngineError(f"{folder}: cannot be listed: {error.strerror}") from None
        return found

    def move(self, request: Request, names: Sequence[str], aside: Path) -> None:
        try:
            for name in names:
                aside.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):
                    (request.checkpoint_dir / name).rename(aside / name)
        except OSError as error:
            raise EngineError(f"{aside}: {name} could not be set aside there: {error.strerror}") from None

    def copy(self, source: Request, request: Request, name: str, new_name: str | None = None) -> None:
        original, folder = source.checkpoint_dir / name, request.checkpoint_dir
        draft = folder / f".{name}.copy"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            clear(draft)
            if original.is_dir():
                shutil.copytree(original, draft, symlinks=True)
            else:
                shutil.copy2(original, draft)
            clear(folder / (new_name or name))
            draft.rename(folder / (new_name or name))
        except OSError as error:
            with suppress(OSError):
                clear(draft)
            raise EngineError(f"{folder}: {name} could not be copied there: {error.strerror or error}") from None

    def remove_residence(self, request: Request, residence: int) -> None:
        folder = request.paths.residence(residence)
        try:
            clear(folder)
        except OSError as error:
            raise EngineError(f"{folder}: could not be removed: {error.strerror}") from None

    def gpu(self) -> Gpu | None:
        """Return the first GPU of this machine, or None."""
        try:
            done = subprocess.run(GPU_QUERY, capture_output=True, text=True, timeout=START_SECONDS, check=True)
        except (OSError, subprocess.SubprocessError, ValueError):
            return None
        return next(iter(parse_gpus(done.stdout)[0]), None)


def _start_wrapper(paths: AttemptPaths, cpus: int | None, env: Mapping[str, str]) -> None:
    # Those with a limit one at a time: each sees the cores that those before it are bound to.
    with _STARTING if cpus else nullcontext():
        cores = _cores(cpus) if cpus else []
        if not fork_wrapper(paths, cores, env):
            _run_wrapper(paths, cores, env)


def _cores(count: int) -> list[int]:
    """Return the cores for an attempt that may have so many."""
    allowed = frozenset(os.sched_getaffinity(0))
    return choose_cores(count, allowed, cores_in_use(allowed))


def _run_wrapper(paths: AttemptPaths, cores: Sequence[int], env: Mapping[str, str]) -> None:
    # The wrapper gets no pipe of ours: it survives us and whoever reads our output.
    subprocess.run(
        [sys.executable, "-I", str(WRAPPER), str(paths.folder), *map(str, cores)],
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=START_SECONDS,
        start_new_session=True,
        umask=umask_of_jobs(),
    )


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _write(path: Path, data: Mapping[str, Any]) -> None:
    # The name has no pid: the draft of a controller that was killed is overwritten by the one after it.
    draft = path.with_suffix(".draft")
    try:
        draft.write_text(json.dumps(data, indent=1), encoding="utf-8")
        draft.rename(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
