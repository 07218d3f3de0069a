"""Builds the command line of sbatch for an attempt, and for a short command beside it. Pure."""

from __future__ import annotations

import shlex
from dataclasses import replace

from rung.jobs.model.engine import SAVE_SIGNAL
from rung.jobs.model.errors import EngineError, NeverTaken
from rung.jobs.model.paths import IN_INSIDE, IN_JOB, IN_RECORD, IN_WORK, AttemptPaths
from rung.jobs.site.options import NO_VARIABLES, Submission, chosen_options, sbatch_options
from rung.jobs.site.settings import Asked, Site, Start
from rung.jobs.site.starting import Command, Mount, start_command
from rung.jobs.site.words import variable
from rung.runner.engines.on_host.layout import wanted_of
from rung.runner.engines.slurm.site_paths import SitePaths, on_site
from rung.runner.seams.engine import Container, Request

# Our code comes before what the node or the image has. Several jobs share its folder, and it is compared with what was
# sent, so Python must not write its bytecode there.
WITH_INSIDE = (
    "PYTHONPATH=$1${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=${PYTHONDONTWRITEBYTECODE:-1}; "
    'export PYTHONPATH PYTHONDONTWRITEBYTECODE; shift; exec "$@"'
)
# A container tool gets all variables of the job in this one, and the shell in the container unpacks it: a variable of
# the job that the tool itself reads would be a way out of the container.
PACKED = "RUNG_ENVIRONMENT"
UNPACK = f'eval "${PACKED}"; unset {PACKED}; '
# A short command needs no GPU and one CPU; memory as much as the job, because the check of a checkpoint loads it.
SHORT = Asked(cpus=1, time=3600)


def name_of(store_id: str, paths: AttemptPaths) -> str:
    return f"rung-{store_id}-{paths.job_id}-{paths.number}"


def mark_of(store_id: str, paths: AttemptPaths) -> str:
    """Return the mark of an attempt's batch job, by which it is known beside its name."""
    return f"rung/{store_id}/{paths.job_id}/{paths.number}"


def tree_of(mark: str) -> str | None:
    """Return the shipped tree that a batch job uses, as its mark says; None: it says none."""
    return mark.partition("@")[2] or None


def batch_words(site: Site, request: Request, paths: SitePaths, name: str) -> tuple[list[str], list[str]]:
    """Return the options of sbatch, and the script with its arguments."""
    mark = f"{mark_of(paths.paths.store_id, request.paths)}@{_tree(paths.inside)}"
    submission = Submission(name, mark, paths.log, paths.record, avoid=request.avoid)
    save = str(SAVE_SIGNAL) if "RUNG_SAVE_SIGNAL" in request.env else "0"
    try:
        options = sbatch_options(site, _asked(request), submission)
        words = _command(site, request, paths)
    except ValueError as error:
        raise NeverTaken(f"{request.job_id}: the cluster cannot be asked for it: {error}") from None
    return options, [f"{paths.inside}/batched.sh", paths.record, paths.work, save, *words]


def short_words(site: Site, request: Request, paths: SitePaths) -> tuple[list[str], list[str]]:
    """Return a short command as it is started on a node, and the options of sbatch for it."""
    job = _asked(request)
    # A partition may allow no more than what the job asks for.
    time = min(filter(None, (SHORT.time, job.time_at(site))))
    asked = replace(SHORT, time=time, partition=job.partition, account=job.account, qos=job.qos, memory=job.memory)
    try:
        return _command(site, replace(request, asked=asked), paths), [
            f"--export-file={NO_VARIABLES}",
            # One whose node fails is asked for again. A cluster may requeue it and then hold it for ever.
            "--no-requeue",
            *chosen_options(site, asked),
        ]
    except ValueError as error:
        raise EngineError(f"{request.job_id}: the cluster cannot be asked for a check: {error}") from None


def seen_by_the_job(site: Site, request: Request, paths: SitePaths) -> Request:
    """Return the request with the paths as the command sees them: in a container, or on the cluster."""
    return request if site.start.contains else on_site(request, paths)


def _command(site: Site, request: Request, paths: SitePaths) -> list[str]:
    wanted, seen = wanted_of(request), seen_by_the_job(site, request, paths)
    inside = IN_INSIDE if site.start.contains else paths.inside
    unpack = UNPACK if site.start.contains else ""
    command = Command(
        argv=("/bin/sh", "-c", unpack + WITH_INSIDE, "rung", inside, *seen.argv),
        cwd=str(seen.cwd),
        image=wanted.image or None,
        mounts=_mounts(paths, wanted),
        variables=(PACKED,),
        scratch=paths.scratch,
        network=wanted.network,
        shm=wanted.shm,
        gpus=_asked(request).gpus,
        nodes=_asked(request).nodes,
        cpus=_asked(request).cpus_at(site),
        name=name_of(paths.paths.store_id, request.paths),
    )
    return start_command(site, command)


def environment(site: Site, request: Request, paths: SitePaths) -> bytes:
    """Return a script for a shell that sets the variables of the command.

    It is a file that only we can read: what is an argument of a program, all users of a node can see.
    """
    seen = seen_by_the_job(site, request, paths)
    # Apptainer sets HOME itself.
    kept = {name: value for name, value in seen.env.items() if name != "HOME" or site.start is not Start.APPTAINER}
    text = "".join(f"export {variable(name)}={shlex.quote(value)}\n" for name, value in sorted(kept.items()))
    if site.start.contains:
        text = f"export {PACKED}={shlex.quote(text)}\n"
    return text.encode("utf-8", "surrogateescape")


def _mounts(paths: SitePaths, wanted: Container) -> tuple[Mount, ...]:
    own = (
        Mount(paths.work, IN_WORK),
        Mount(paths.job, IN_JOB),
        Mount(paths.record, IN_RECORD),
        Mount(paths.inside, IN_INSIDE, read_only=True),
    )
    return (*own, *(Mount(each.host, each.container, each.read_only) for each in wanted.volumes))


def _asked(request: Request) -> Asked:
    return request.asked or Asked()


def _tree(inside: str) -> str:
    """Return the id of a shipped tree from its folder."""
    return inside.removesuffix("/files").rpartition("/")[2]
