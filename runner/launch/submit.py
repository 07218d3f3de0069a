"""Submits, retries and cancels jobs: refuses those that could never run, and writes the others as QUEUED."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rung.jobs.job import Job
from rung.jobs.model.errors import UsageError
from rung.jobs.model.host import Host
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.image import for_gpu
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.knob_channels import why_unreachable
from rung.jobs.spec.knob_spec import KnobSpec
from rung.runner.hosts.survey import Report
from rung.runner.hosts.this_machine import HERE, VISIBLE, lacks_gpus, max_parallel, survey_here
from rung.runner.launch.engine_fit import refuse_too_much
from rung.runner.launch.file_values import with_file_values
from rung.runner.launch.grid import Combination
from rung.runner.launch.job_file import JobFile, refuse_other_job
from rung.runner.launch.shell_python import recorded_python
from rung.runner.state import transitions
from rung.runner.state.store import Store


@dataclass(frozen=True)
class Beginning:
    """What new jobs begin with: what their histories say of it, and what is done for each as it is added."""

    about: Mapping[str, Any] = field(default_factory=dict)
    # Part of the transaction that adds the job.
    on_added: Callable[[Job], None] = lambda job: None


def refuse_impossible(
    spec: JobSpec, origin: Path, hosts: Callable[[], Sequence[Host]], here: Callable[[], Report] | None = None
) -> None:
    """Refuse a job that could never run. `hosts` returns the list of hosts, for a job that goes to one; `here` surveys
    this machine, for a job with GPUs and without an image.
    """
    if not spec.is_remote:
        _refuse_impossible_here(spec, here or partial(survey_here, os.environ))
    if isinstance(spec.image, dict) and not spec.resources.gpu and for_gpu(spec.image, "cpu") is None:
        raise UsageError(f"{spec.name}: image is a map by GPU: say in resources.gpu which ones the job accepts")
    if spec.is_remote:
        _refuse_impossible_there(spec, hosts())
    workdir = (origin / spec.workdir).absolute()
    if not workdir.is_dir():
        raise UsageError(f"{spec.name}: workdir {workdir} is not a folder; it is taken relative to the job file")
    with_file_values(spec, workdir)


def _refuse_impossible_there(spec: JobSpec, hosts: Sequence[Host]) -> None:
    if not hosts:
        raise UsageError(
            f"{spec.name}: {_what_goes_there(spec)} runs on a host, and the list of hosts is empty: "
            "`rung hosts` says where to list one"
        )
    refuse_too_much(spec, hosts)


def _what_goes_there(spec: JobSpec) -> str:
    if spec.slurm is not None or spec.resources.time is not None:
        return "a job for Slurm"
    return "a job on several hosts" if spec.resources.nodes > 1 else "a job with an image"


def _refuse_impossible_here(spec: JobSpec, here: Callable[[], Report]) -> None:
    refuse_too_much(spec, [HERE])
    max_parallel(os.environ)  # a wrong value is better refused here than by the controller
    if not spec.resources.gpu:
        return
    if VISIBLE in spec.envs:
        raise UsageError(
            f"{spec.name}: envs.{VISIBLE}: Rung sets it to the GPUs that the job gets by resources.gpu; "
            "take one of the two out of the job file"
        )
    if why := lacks_gpus(spec.resources.gpu, here()):
        raise UsageError(
            f"{spec.name}: resources.gpu: this machine {why}; ask for another GPU, or name an image to run on a host"
        )


def submit(store: Store, spec: JobSpec, origin: Path, *, at: float, beginning: Beginning | None = None) -> Job:
    """Queue a new job."""
    beginning = beginning or Beginning()
    spec = with_file_values(spec, origin / spec.workdir)
    with store.transaction():
        job = store.add_job(spec, origin, at=at, about=beginning.about)
        beginning.on_added(job)
        return job


def submit_grid(
    store: Store,
    combinations: Sequence[Combination],
    file: Path,
    at_once: int | None,
    *,
    at: float,
    beginning: Beginning,
) -> tuple[str, list[Job]]:
    """Queue one job for each combination, all or none; return the id of their group, and the jobs."""
    specs = [with_file_values(each.spec, file.parent / each.spec.workdir) for each in combinations]
    with store.transaction():
        group = store.add_group(file.stem, at_once, at=at)
        jobs = []
        for each, spec in zip(combinations, specs, strict=True):
            grid = {"file": str(file), "group": group, "grid": dict(each.settings)}
            about = {**grid, **recorded_python(spec, os.environ), **beginning.about}
            job = store.add_job(spec, file.parent, at=at, about=about)
            store.put_in_group(job.id, group, each.settings)
            beginning.on_added(job)
            jobs.append(job)
        return group, jobs


def retry(
    store: Store,
    job: Job,
    settings: dict[str, str],
    edited: JobFile | None = None,
    *,
    give_up_hosts: bool = False,
    at: float,
) -> Job:
    """Queue an ended job again, with its edited file and the knobs that a person set; its history continues.

    `give_up_hosts`: it does not wait for hosts that do not answer, whatever checkpoints they have.
    """
    texts: tuple[str | None, str | None] = (None, None)
    about: dict[str, Any] = {"give_up_hosts": True} if give_up_hosts else {}
    if edited is not None:
        refuse_other_job(job, edited.spec)
        job = replace(job, spec=edited.complete(), knobs=edited.complete().knobs.knobs(), refused="")
        texts, about = (job.spec.model_dump_json(), str(edited.origin)), {**about, "file": str(edited.path)}
    if job.refused:
        raise UsageError(f"job {job.id} cannot be retried: {job.refused}")
    knobs = changed_knobs(job, settings)
    with store.transaction():
        job = store.job(job.id)
        store.refuse_removed(job.id)
        if job.state not in (JobState.FAILED, JobState.CANCELLED):
            raise UsageError(f"job {job.id} is {job.state}; only a FAILED or CANCELLED job can be retried")
        return transitions.retried(store, job, knobs, about, texts, at=at)


def changed_knobs(job: Job, settings: dict[str, str]) -> Knobs:
    """Return the job's knobs with `name=value` settings, checked like those of a job file."""
    known = {name: value for name, value in job.knobs.to_dict().items() if name in KnobSpec.model_fields}
    for name in settings:
        if name not in known:
            fields = "; --file takes an edited job file" if name in JobSpec.model_fields or "." in name else ""
            raise UsageError(f"--set {name}: no such knob; known: {', '.join(known)}{fields}")
        if reason := why_unreachable(job.spec, name):
            raise UsageError(f"--set {name}: {reason}")
    try:
        knobs = KnobSpec.model_validate({"mode": job.spec.knobs.mode, **known, **settings}).knobs()
    except ValueError as error:
        first = getattr(error, "errors")()[0]  # noqa: B009
        raise UsageError(f"--set {first['loc'][0]}: {first['msg']}") from None
    if "precision" in settings and (reason := why_unreachable(job.spec, "precision", knobs.precision)):
        raise UsageError(f"--set precision: {reason}")
    return knobs


def cancel(store: Store, job: Job, *, at: float) -> None:
    """Request the end of a job; the controller ends it."""
    with store.transaction():
        # The controller may have changed it since it was read.
        job = store.job(job.id)
        if job.ended:
            raise UsageError(f"job {job.id} is {job.state} already; there is nothing to cancel")
        transitions.cancel_requested(store, job, at=at)


def cancel_group(store: Store, group: str, *, at: float) -> list[Job]:
    """Request the end of all jobs of a group that have not ended, at once: none starts because another one ends."""
    with store.transaction():
        members = {job_id for job_id, member in store.groups().items() if member.group == group}
        active = [job for job in store.jobs(active=True) if job.id in members]
        if not active:
            raise UsageError(f"group {group}: all of its jobs have ended; there is nothing to cancel")
        for job in active:
            transitions.cancel_requested(store, job, at=at)
        return active
