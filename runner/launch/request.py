"""Builds the request for an attempt (pure) and starts it.

The dry run prints the same request that a launch starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any

import tenacity

from rung.jobs.job import Attempt, Job
from rung.jobs.model.engine import SAVE_SIGNAL, LogAt, PlacedBy
from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import IN_JOB, IN_RECORD, IN_WORK, HomePaths
from rung.jobs.spec.fields import parse_size
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.knob_spec import KnobSpec
from rung.jobs.spec.resources import rank_count
from rung.runner.files.inside import INSIDE
from rung.runner.hosts.this_machine import VISIBLE
from rung.runner.launch.render import file_edits, fill, fill_command, placeholder_values, texts
from rung.runner.launch.site_request import asked_of
from rung.runner.launch.trackers import tracker_variables
from rung.runner.seams.engine import Container, Engine, Request

# What a job on this machine inherits; everything else, above all secrets, must be named in the job file.
INHERITED = re.compile(
    r"PATH|PYTHONPATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|VIRTUAL_ENV|CONDA_\w+"
    r"|CUDA_\w+|NVIDIA_\w+|OMP_\w+|MKL_\w+|HF_HOME|TORCH_HOME|XDG_CACHE_HOME"
)
START_TRIES = 3
# The variable with the names of those variables of the controller that jobs may have as secrets.
ALLOWED = "RUNG_SECRETS"
# What the engine of a host logs, whatever the command does with its own output.
LOGS = {LogAt.OUTPUT: "/proc/1/fd/1", LogAt.RECORD: f"{IN_RECORD}/log"}


def build_request(job: Job, attempt: Attempt, paths: HomePaths, origin: Path, environ: Mapping[str, str]) -> Request:
    """Return the request for this attempt. Pure: reads no disk, starts nothing."""
    away = attempt.is_remote
    checkpoint_dir = _checkpoint_dir(job, attempt, paths)
    source = (origin / job.spec.workdir).absolute()
    values = placeholder_values(job.spec, attempt, checkpoint_dir)
    resources = job.spec.resources
    limits = {
        **({"memory": parse_size(resources.memory)} if resources.memory else {}),
        **({"cpus": resources.cpus} if resources.cpus else {}),
    }
    files, copied = paths.attempt(job.id, attempt.number), away or bool(job.spec.knobs.files)
    here = files.work if copied else source
    env = _environment_there(job, attempt, paths) if away else _environment(job, attempt, paths, environ)
    return Request(
        job_id=job.id,
        attempt=attempt.number,
        argv=_command(job.spec, attempt, texts(values)),
        cwd=Path(IN_WORK) if away else here,
        env={**env, "RUNG_LOG": LOGS.get(attempt.engine.log, str(files.log))},
        paths=files,
        checkpoint_dir=checkpoint_dir,
        secrets=job.spec.secrets,
        limits=limits,
        container=_container(job.spec, attempt),
        source=source if copied else None,
        edits=file_edits(job.spec, values),
        asked=asked_of(job.spec) if attempt.engine.placed_by is PlacedBy.SITE else None,
    )


def _command(spec: JobSpec, attempt: Attempt, values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words of the command, under the code that starts and merges its ranks where it has several."""
    words = fill_command(spec.command(resumes=attempt.resumed_from is not None), values)
    count = rank_count(spec.ranks, spec.resources.gpu, len(attempt.gpus))
    return words if count is None else (words[0], "-m", "rung_inside.ranks", str(count), *words)


def _checkpoint_dir(job: Job, attempt: Attempt, paths: HomePaths) -> Path:
    """Return the checkpoint folder: on this machine, or as a container on a host sees it."""
    if attempt.is_remote:
        return Path(IN_JOB) / job.spec.checkpoint.dir
    return paths.checkpoints(job.id, job.spec.checkpoint.dir, attempt.residence)


def _container(spec: JobSpec, attempt: Attempt) -> Container | None:
    if not attempt.is_remote:
        return None
    return Container(
        image=attempt.image or "",
        gpus=tuple(gpu.uuid or str(gpu.index) for gpu in attempt.gpus),
        volumes=spec.mounted,
        shm=parse_size(spec.resources.shm),
        pids=spec.resources.pids,
        network=spec.network,
        residence=attempt.residence,
    )


def _environment_there(job: Job, attempt: Attempt, paths: HomePaths) -> dict[str, str]:
    """Return the variables to set on a host; nothing is inherited from this machine."""
    checkpoint_dir = _checkpoint_dir(job, attempt, paths)
    values = texts(placeholder_values(job.spec, attempt, checkpoint_dir))
    # Our user on the host has no name and no home in an image, but programs need both.
    env = {"HOME": "/tmp", "USER": "rung", "LOGNAME": "rung"} if attempt.is_contained else {}  # noqa: S108
    env |= {name: fill(text, values) for name, text in job.spec.envs.items()}
    env |= tracker_variables(job, attempt)
    env |= _rung_variables(job, attempt, checkpoint_dir) | {"PYTHONUNBUFFERED": "1"}
    return env


def _environment(job: Job, attempt: Attempt, paths: HomePaths, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a job without secrets: inherited, from the job file, and from Rung."""
    checkpoint_dir = _checkpoint_dir(job, attempt, paths)
    values = texts(placeholder_values(job.spec, attempt, checkpoint_dir))
    env = {name: value for name, value in environ.items() if INHERITED.fullmatch(name)}
    env |= {name: fill(text, values) for name, text in job.spec.envs.items()}
    env |= tracker_variables(job, attempt)
    env |= _rung_variables(job, attempt, checkpoint_dir)
    if attempt.gpus:
        env[VISIBLE] = ",".join(gpu.uuid for gpu in attempt.gpus)
    env |= {"PYTHONPATH": ":".join([str(INSIDE), *filter(None, [env.get("PYTHONPATH")])]), "PYTHONUNBUFFERED": "1"}
    return env


def _rung_variables(job: Job, attempt: Attempt, checkpoint_dir: Path) -> dict[str, str]:
    """Return the variables for the code inside the job."""
    spec, resumed = job.spec.checkpoint, attempt.resumed_from
    variables: dict[str, Any] = {
        "RUNG_JOB": job.id,
        "RUNG_ATTEMPT": attempt.number,
        "RUNG_MODE": mode_inside(job.spec.knobs),
        "RUNG_KNOBS": json.dumps(attempt.asked.to_dict()),
        "RUNG_CHECKPOINT": str(checkpoint_dir / spec.loaded_name(resumed)) if resumed else "",
        "RUNG_CHECKPOINT_DIR": checkpoint_dir,
        "RUNG_CHECKPOINT_PATTERN": spec.pattern,
    }
    if spec.is_rungs_own:
        variables["RUNG_CHECKPOINT_BY"] = spec.by
    if spec.is_one_file or spec.is_rungs_own:
        variables["RUNG_CHECKPOINT_KEEP"] = spec.keep
    if attempt.planned_step is not None:
        variables["RUNG_CHECKPOINT_STEP"] = attempt.planned_step
    if attempt.trial is not None and not attempt.trial.may_go_on:
        # The last one can win and go on, so only the controller stops it.
        variables["RUNG_STOP_AT"] = attempt.trial.until
    if spec.every:
        variables["RUNG_CHECKPOINT_EVERY"] = spec.every
    if attempt.engine.warns_before:
        variables["RUNG_SAVE_SIGNAL"] = SAVE_SIGNAL
    return {name: str(value) for name, value in variables.items()}


def mode_inside(knobs: KnobSpec) -> str:
    """Return what the code inside the job does: with flags it may read, and sets nothing."""
    return "watch" if knobs.mode == "flags" and knobs.watch == "inside" else knobs.mode


def find_secrets(names: tuple[str, ...], paths: HomePaths, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets' values; never logged, never stored.

    A job file may name any variable, so a secret is found only where the user allowed it: a variable of the controller
    that RUNG_SECRETS names, or a file in RUNG_HOME/secrets.
    """
    allowed = {name.strip() for name in environ.get(ALLOWED, "").split(",")}
    return {name: _find_secret(name, paths.secrets / name, environ, allowed) for name in names}


def _find_secret(name: str, file: Path, environ: Mapping[str, str], allowed: Set[str]) -> str:
    if name in environ and name in allowed:
        return environ[name]
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise EngineError(f"secret {name}: {file} cannot be read as text: {error}") from None
    if name in environ:
        raise EngineError(
            f"secret {name}: no job may have this variable of the controller: allow it with {ALLOWED}={name} "
            f"(several with commas), or write the value to {file}"
        )
    raise EngineError(
        f"secret {name} is not set: write it to {file}, or export it for the controller and allow it with "
        f"{ALLOWED}={name}"
    )


def start_attempt(engine: Engine, request: Request, secrets: Mapping[str, str], sleep: Callable[[float], None]) -> None:
    """Start an attempt. Retry when the machine is short of something; a host that is away is not waited for here."""
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(EngineError),
        stop=tenacity.stop_after_attempt(START_TRIES),
        wait=tenacity.wait_random_exponential(multiplier=0.5, max=5),
        sleep=sleep,
        reraise=True,
    )
    retrying(engine.start, request, secrets)
