"""Plans what `rung prune` removes: of jobs that ended long ago, all that no retry and no other job needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.checkpoint_verdict import NOT_EXAMINED
from rung.jobs.model.errors import EngineError, HostError
from rung.jobs.model.event import EventKind
from rung.jobs.model.state import JobState
from rung.recovery.decide.checkpoint_choice import Checkpoint
from rung.runner.checkpoints.residences import mirrored
from rung.runner.checkpoints.shared_files import engines_with_files, first_answer
from rung.runner.checkpoints.verify import checkpoint_of
from rung.runner.context import Context
from rung.runner.files.own_folder import is_reached_by_link
from rung.runner.seams.engine import FileEntry, Request
from rung.runner.storage.here import HERE
from rung.runner.storage.home_leftovers import plan_leftovers
from rung.runner.storage.layout import MIRROR, checkpoint_folder, leftovers, set_aside_folders, work_copies
from rung.runner.storage.plan import (
    CHECKPOINTS,
    COPIES,
    SET_ASIDE,
    TRANSFERS,
    TREES,
    WORK,
    Kept,
    Place,
    Places,
    Plan,
    Removal,
    folders_of_the_user,
    measured,
    starts_of_active_jobs,
)
from rung.runner.storage.retention import Retention, kept_names


@dataclass(frozen=True)
class Found:
    """A checkpoint in the folder of a job in one place."""

    where: str
    what: str
    path: str
    checkpoint: Checkpoint


def plan_prune(context: Context, *, older: float, keep: int, now: float) -> Plan:
    """Plan for jobs that ended more than `older` seconds ago; of each, the newest `keep` checkpoints stay."""
    plan = Plan()
    places = Places(context, plan)
    old = [job for job in context.store.jobs() if job.ended and now - job.updated_at > older]
    starts = starts_of_active_jobs(context)
    for job in old:
        rule = Retention(keep, job.state is JobState.SUCCEEDED, frozenset(name for _, name in starts.get(job.id, ())))
        if not was_pruned(context, job, rule):
            _plan_job(places, plan, job, rule)
    for host in sorted({host for job in old for host in places.on_hosts(job)}):
        _plan_trees(places, plan, host, {job.id for job in old}, older)
    plan.removals += plan_leftovers(context, older=older, now=now)
    return plan


def was_pruned(context: Context, job: Job, rule: Retention) -> bool:
    """Tell whether an earlier prune has left nothing to do, so that no host need be asked about the job again."""
    events = [event for event in context.store.events(job.id) if event.kind == EventKind.PRUNED]
    if not events or events[-1].at < job.updated_at:
        return False
    return bool(events[-1].data.get("whole")) and int(events[-1].data["keep"]) <= rule.keep


def _plan_job(places: Places, plan: Plan, job: Job, rule: Retention) -> None:
    there: list[Place] = []
    found: list[Found] = []
    for place in places.of(job):
        try:
            found += _checkpoints(places.context, job, place, plan)
            there.append(place)
        except (EngineError, HostError) as error:
            plan.note(place.where, job.id, error)
    whole = {HERE, *places.on_hosts(job)} <= {place.where for place in there}
    # What lies on a host that is away may be older than what is here, or newer: then all checkpoints stay.
    kept = _kept(places.context, job, found, rule) if whole else {each.path for each in found}
    plan.kept += _explained(job, found, kept, rule, whole=whole)
    for place in there:
        goes = [each for each in found if each.where == place.where and each.path not in kept]
        plan.kept += folders_of_the_user(job, place)
        try:
            plan.removals += measured(job, place, _wanted(place, goes))
        except (EngineError, HostError) as error:
            plan.note(place.where, job.id, error)
            whole = False
    if whole:
        plan.seen.append(job.id)


def _wanted(place: Place, goes: Sequence[Found]) -> dict[str, list[str]]:
    return {
        CHECKPOINTS: [each.path for each in goes if each.what == CHECKPOINTS],
        COPIES: [each.path for each in goes if each.what == COPIES],
        SET_ASIDE: set_aside_folders(place.attempts),
        WORK: work_copies(place.attempts),
        TRANSFERS: leftovers(place.attempts),
    }


def _kept(context: Context, job: Job, found: Sequence[Found], rule: Retention) -> set[str]:
    """Return the paths of the checkpoints that stay; the same path in two places is the same checkpoint."""
    names = kept_names([each.checkpoint for each in found], context.store.attempts(job.id), rule)
    return {each.path for each in found if each.checkpoint.name in names}


def _explained(job: Job, found: Sequence[Found], kept: set[str], rule: Retention, *, whole: bool) -> list[Kept]:
    """Return which checkpoints stay in each place, and why."""
    lines = []
    for where in dict.fromkeys(each.where for each in found):
        names = list(dict.fromkeys(each.checkpoint.name for each in found if each.where == where and each.path in kept))
        needed = [name for name in names if name in rule.sources]
        why = "the newest ones" if whole else "a host of the job cannot be asked, so all stay"
        why += f"; a job that has not ended began with {', '.join(needed)}" if needed else ""
        lines += [Kept(job.id, where, ", ".join(names), why)] if names else []
    return lines


def _checkpoints(context: Context, job: Job, place: Place, plan: Plan) -> list[Found]:
    """Return the checkpoints of a job in one place that are in folders of Rung's own."""
    found, attempts = [], context.store.attempts(job.id)
    for attempt in {each.residence: each for each in main_line(place.attempts)}.values():
        folder = checkpoint_folder(job, attempt)
        if folder is None:
            continue
        if place.where == HERE and is_reached_by_link(context.paths.job(job.id), folder):
            plan.kept.append(Kept(job.id, HERE, folder, "a link leads there, and Rung follows none"))
            continue
        found += _in_folder(context, job, attempt, (place.where, folder))
    if place.where == HERE:
        copies = mirrored(context.paths.mirror(job.id), context.store.verdicts(job.id), attempts)
        found += [Found(HERE, COPIES, f"{MIRROR}/{each.name}", each) for each in copies]
    return found


def _in_folder(context: Context, job: Job, attempt: Attempt, place: tuple[str, str]) -> list[Found]:
    """Return the checkpoints of an attempt; `place`: where they are, and the folder there."""
    verdicts, attempts = context.store.verdicts(job.id), context.store.attempts(job.id)
    request, (where, folder) = _without_volumes(context.request(job, attempt)), place
    entries = _entries(context, job, attempt, request)
    found = [checkpoint_of(each, verdicts.get(each.fingerprint, NOT_EXAMINED), attempts) for each in entries]
    here = [replace(each, residence=(attempt.host, attempt.residence)) for each in found]
    return [Found(where, CHECKPOINTS, _below(folder, each.name), each) for each in here]


def _entries(context: Context, job: Job, attempt: Attempt, request: Request) -> Sequence[FileEntry]:
    pattern = job.spec.checkpoint.pattern
    if not attempt.is_remote:
        return context.engines.of(attempt).list_files(request, pattern)
    engines = engines_with_files(context.engines, job, attempt)
    return first_answer(engines, lambda engine: engine.list_files(request, pattern))


def _without_volumes(request: Request) -> Request:
    """Leave out the volumes: a folder of Rung's own is in none, and one may be gone from the host."""
    container = request.container
    return replace(request, container=replace(container, volumes=())) if container else request


def _below(folder: str, name: str) -> str:
    return name if folder == "." else f"{folder}/{name}"


def _plan_trees(places: Places, plan: Plan, host: str, old: set[str], older: float) -> None:
    """Plan for the trees of a host that are old, and that no job has a copy of which has not ended long ago."""
    trees = places.trees(host)
    if trees is None:
        return
    gone = {job.id for job in places.context.store.jobs(removed=True)} - {job.id for job in places.context.store.jobs()}
    try:
        ids = tuple(tree.id for tree in trees.list() if tree.age > older and tree.jobs <= old | gone)
        plan.removals += [Removal(None, host, TREES, ids, trees.disk_use(ids))] if ids else []
    except (EngineError, HostError) as error:
        plan.note(host, TREES, error)
