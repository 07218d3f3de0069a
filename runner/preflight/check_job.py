"""Checks whether this machine and a job file have all that a run needs, for `rung check`. Changes nothing."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rung.jobs.job import Job
from rung.jobs.model.errors import RungError, UsageError
from rung.jobs.model.paths import HomePaths, job_id
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.recovery_spec import DEFAULT_LADDER
from rung.jobs.spec.resources import LAUNCHERS, PER_GPU, rank_count
from rung.recovery.logs.line_reader import MARK
from rung.recovery.trials.plan import shared_folder
from rung.runner.checkpoints.verify import python_of
from rung.runner.hosts.host_list import find_hosts
from rung.runner.hosts.this_machine import survey_here
from rung.runner.launch.file_values import with_file_values
from rung.runner.launch.request import build_request, find_secrets
from rung.runner.launch.shell_python import find_python, with_python
from rung.runner.launch.submit import refuse_impossible
from rung.runner.preflight.check_resume import check_resume, find_trainer
from rung.runner.preflight.rung_preview import change_text, rung_changes
from rung.runner.preflight.site_preview import site_lines
from rung.runner.preflight.slot import machine_lines, preview_slot
from rung.runner.seams.engine import Engine, Request
from rung.runner.state.home import home_problem
from rung.runner.state.lock import is_owned
from rung.runner.state.next_attempt import Placement, asked_by_person
from rung.runner.state.store import Store

# The first import of torch reads a gigabyte from a cold disk.
TORCH_SECONDS = 120.0
COMMAND_FIX = "put the command on PATH, or give its full path"
# Modules that run a script.
SCRIPT_RUNNERS = frozenset({*LAUNCHERS, "rung_inside.ranks"})


@dataclass(frozen=True)
class CheckResult:
    good: bool
    what: str
    fix: str = ""


def check_machine(paths: HomePaths) -> Iterator[CheckResult]:
    """Check whether this machine can keep a store and run a controller."""
    existing = next(folder for folder in (paths.home, *paths.home.parents) if folder.exists())
    writable = os.access(existing, os.W_OK)
    can = "can" if writable else "cannot"
    yield CheckResult(writable, f"home {paths.home} {can} be written", "set RUNG_HOME to a folder of yours")
    if problem := home_problem(paths):
        yield CheckResult(False, problem)
    free = shutil.disk_usage(existing).free
    yield CheckResult(
        free > 1 << 30,
        f"{free >> 20} MiB of disk are free for {paths.home}",
        "free some disk space: logs and checkpoints go there",
    )
    running = paths.home.exists() and is_owned(paths)
    what = "a controller is running" if running else "no controller is running"
    yield CheckResult(True, what, "" if running else "`rung launch` starts one, unless RUNG_CONTROLLER=manual")


def check_slots(environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Show what this machine has for jobs without an image."""
    try:
        yield from (CheckResult(True, line) for line in machine_lines(survey_here(environ), environ))
    except UsageError as error:
        yield CheckResult(False, str(error))


def check_job(
    spec: JobSpec, origin: Path, paths: HomePaths, engine: Engine, environ: Mapping[str, str]
) -> Iterator[CheckResult]:
    """Check what a job needs: its secrets and rungs, and if it has no image, the command and torch on this machine."""
    try:
        refuse_impossible(spec, origin, lambda: find_hosts(environ))
    except RungError as error:
        yield from (CheckResult(False, problem) for problem in str(error).splitlines())
        return
    spec = with_file_values(spec, origin / spec.workdir)
    python = find_python(environ)
    shell = with_python(environ, python)
    request = preview_request(spec, origin, (paths, shell), 1, Placement(engine.host))
    if not spec.is_remote:
        yield CheckResult(True, f"its Python is the one of this shell: {python or 'none is on PATH'}")
        yield from _local(request, engine)
        yield _slot(spec, paths, environ)
    yield from (CheckResult(True, line) for line in site_lines(spec, find_hosts(environ) if spec.is_remote else ()))
    yield from _script(spec, request)
    if (ranks := rank_count(spec.ranks, spec.resources.gpu, 0)) is not None:
        count = f"{ranks} {'rank' if ranks == 1 else 'ranks'}"
        per_node = f" on each of {spec.resources.nodes} nodes" if spec.resources.nodes > 1 else ""
        per_gpu = ", one on each GPU" if spec.ranks == PER_GPU else ""
        yield CheckResult(True, f"torchrun starts it as {count}{per_node}{per_gpu}")
    yield _resume(spec, origin, paths, shell)
    for name in spec.secrets:
        yield _secret(name, paths, environ)
    if spec.recovery.trials is not None and (why := shared_folder(spec)):
        yield CheckResult(True, f"recovery.trials has no effect: {why}")
    yield from _rungs(spec)


def _rungs(spec: JobSpec) -> Iterator[CheckResult]:
    """Tell what each rung would change; a ladder of which nothing is left cures no fault."""
    rungs = rung_changes(spec)
    for rung, (changes, note) in rungs.items():
        effect = f" would {'be skipped:' if isinstance(changes, str) else 'set'} {change_text(spec, changes)}"
        yield CheckResult(True, f"rung {rung}{f': {note}' if note else effect}")
    for rung in DEFAULT_LADDER:
        if rung not in rungs:
            yield CheckResult(True, f"rung {rung} is not in this job's ladder")
    if rungs and all(isinstance(changes, str) and not note for changes, note in rungs.values()):
        yield CheckResult(
            False,
            "every rung of its ladder would be skipped, so no fault of the run itself can be cured",
            "write `knobs: {mode: zero-edit}` for a PyTorch script as it is, or name the knobs that its flags take, "
            "such as --lr {lr}; the lines above say what each rung lacks",
        )


def _local(request: Request, engine: Engine) -> Iterator[CheckResult]:
    word, folder = request.argv[0], request.source or request.cwd
    found = str(folder / word) if "/" in word else shutil.which(word, path=request.env.get("PATH", ""))
    if found is not None and os.access(found, os.X_OK):
        yield CheckResult(True, f"command {word} is {'found' if found == word else found}")
    else:
        where = f"in {folder}" if found else "on PATH"
        yield CheckResult(False, f"command {word} is not found {where}", f"correct `run`: {COMMAND_FIX}")
    yield _torch(engine, request)


def _script(spec: JobSpec, request: Request) -> Iterator[CheckResult]:
    """Check whether the script of the command is there. In a container only the workdir is known here."""
    name, folder = _script_name(request.argv), request.source or request.cwd
    if name is None or (spec.is_remote and (spec.volumes or name.startswith("/"))):
        return
    if (folder / name).is_file():
        yield CheckResult(True, f"script {folder / name} is there")
    else:
        yield CheckResult(False, f"script {name} is not in {folder}", "correct `run`, or `workdir`: the job runs there")


def _script_name(argv: Sequence[str]) -> str | None:
    """Return the script that a command runs; None: a module, or nothing that looks like a script."""
    if {"-c", "-m"} & set(argv[1:2]) and not {*argv[2:3]} & SCRIPT_RUNNERS:
        return None
    return next((word for word in argv if word.endswith(".py") and not word.startswith("-")), None)


def _slot(spec: JobSpec, paths: HomePaths, environ: Mapping[str, str]) -> CheckResult:
    """Tell which slot of this machine the job would get now; to wait for one is no problem."""
    try:
        store = Store(paths.store) if paths.store.exists() and home_problem(paths) is None else None
        found = preview_slot(spec, job_id(spec.name, 0), store, environ)
    except RungError as error:
        return CheckResult(False, str(error))
    return CheckResult(True, f"it would wait now: {found.waits}" if found.waits else f"its slot now: {found.text}")


def _torch(engine: Engine, request: Request) -> CheckResult:
    python = shutil.which(python_of(request.argv), path=request.env.get("PATH", "")) or python_of(request.argv)
    # This process trains nothing, so it writes no records.
    request = replace(request, env={**request.env, "RUNG_MODE": "off"})
    try:
        code, output, _ = engine.run([python, "-c", "import torch; print(torch.__version__)"], request, TORCH_SECONDS)
    except RungError as error:
        return CheckResult(False, str(error), "checkpoints are verified with it")
    # The records of the code inside are no part of the answer.
    version = " ".join(line.strip() for line in output.splitlines() if not line.startswith(MARK)).strip()
    if code == 0:
        return CheckResult(True, f"{python} has torch {version}{_old_torch_note(version)}")
    return CheckResult(
        False,
        f"{python} has no torch",
        "checkpoints cannot be verified without it: install torch there, or activate the environment that has it",
    )


def _old_torch_note(version: str) -> str:
    """Return a warning about a torch before 2.6: a file can run code even with weights_only=True (CVE-2025-32434)."""
    numbers = [int(part) for part in re.findall(r"\d+", version)[:2]]
    safe = len(numbers) < 2 or numbers >= [2, 6]
    return "" if safe else ", which is unsafe to load files from others with; 2.6 and later are safe"


def _resume(spec: JobSpec, origin: Path, paths: HomePaths, environ: Mapping[str, str]) -> CheckResult:
    """Return whether a relaunch goes on from a checkpoint: as the command and the code of the script tell."""
    job = planned_job(spec, 1)
    first = asked_by_person(job, (), (), Placement("localhost"))
    request = build_request(job, replace(first, resumed_from=spec.checkpoint.searched), paths, origin, environ)
    if spec.checkpoint.is_rungs_own:
        return _rungs_own(spec, find_trainer(request.argv, request.source or request.cwd))
    found = check_resume(request.argv, request.source or request.cwd, spec.knobs.mode)
    if found.resumes is None:
        return CheckResult(True, f"whether a relaunch resumes is not known: {found.why}")
    given = "checkpoint" in spec.model_fields_set or spec.run_on_resume is not None
    return CheckResult(
        found.resumes or not given,
        f"a relaunch resumes: {found.why}" if found.resumes else f"a relaunch begins at step 0: {found.why}",
        "give the command that resumes as `run_on_resume`",
    )


def _rungs_own(spec: JobSpec, trainer: str | None) -> CheckResult:
    """Return whether Rung can save the run for the script: not where a Trainer drives it."""
    if trainer is None:
        what = f"a relaunch resumes: Rung saves and restores it every {spec.checkpoint.every} updates"
        return CheckResult(True, what)
    return CheckResult(
        False,
        f"checkpoint.by: rung: the Trainer of {trainer} fetches its batches ahead, so Rung would save nothing, and "
        "every relaunch would begin at step 0",
        "let the Trainer save, and leave `by` out; `rung init` writes where its checkpoints are",
    )


def _secret(name: str, paths: HomePaths, environ: Mapping[str, str]) -> CheckResult:
    try:
        find_secrets((name,), paths, environ)
    except RungError as error:
        return CheckResult(False, str(error))
    return CheckResult(True, f"secret {name} is set")


def preview_request(
    spec: JobSpec, origin: Path, home: tuple[HomePaths, Mapping[str, str]], sequence: int, placement: Placement
) -> Request:
    """Return the request that a launch of this job would start."""
    job = planned_job(spec, sequence)
    paths, environ = home
    return build_request(job, asked_by_person(job, (), (), placement), paths, origin, environ)


def planned_job(spec: JobSpec, sequence: int) -> Job:
    """Return the job that a submit would create."""
    return Job(job_id(spec.name, sequence), spec, JobState.QUEUED, "", 0.0, 0.0, spec.knobs.knobs())
