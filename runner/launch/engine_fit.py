"""Tells what a job asks for that an engine cannot do, so that it is refused when it is submitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rung.jobs.model.engine import Ask, EngineKind
from rung.jobs.model.errors import UsageError
from rung.jobs.model.host import Host
from rung.jobs.spec.job_spec import JobSpec, Resources

# Whether a job file asks for each of these. What it only repeats of the defaults is not asked for.
ASKED: Mapping[Ask, Callable[[JobSpec], bool]] = {
    Ask.VOLUMES: lambda spec: bool(spec.volumes),
    Ask.NO_NETWORK: lambda spec: spec.network == "none",
    Ask.PIDS: lambda spec: spec.resources.pids != Resources().pids,
}


def too_much(spec: JobSpec, engine: EngineKind) -> list[Ask]:
    """Return what the job asks for that the engine cannot do."""
    return [ask for ask, is_asked in ASKED.items() if is_asked(spec) and ask not in engine.can_do]


def refuse_too_much(spec: JobSpec, hosts: Sequence[Host]) -> None:
    """Refuse a job that asks for more than the engine of any of these hosts can do."""
    beyond = [too_much(spec, host.engine) for host in hosts]
    if not beyond or not all(beyond):
        return
    if spec.image is None:
        raise UsageError(
            f"{spec.name}: {beyond[0][0]} needs an image: a job without one runs as a process on this machine; "
            "name an image, or take it out of the job file"
        )
    raise UsageError(f"{spec.name}: {beyond[0][0]}: no host of the list can do that; take it out of the job file")
