"""Removes what was planned, place by place. A host that does not answer does not stop the rest. Safe to repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rung.jobs.job import Job
from rung.jobs.model.errors import EngineError, HostError, RungError
from rung.jobs.model.event import EventKind
from rung.runner.context import Context
from rung.runner.seams.storage import DiskUse, total_use
from rung.runner.storage.here import HERE
from rung.runner.storage.home_leftovers import plan_leftovers, remove_leftovers
from rung.runner.storage.plan import TREES, Places, Plan, Removal, shown_place, starts_of_active_jobs
from rung.runner.storage.plan_rm import refuse_needed
from rung.runner.storage.shared import trees_on


@dataclass
class Removed:
    """What was removed, and what could not be, in one sentence each."""

    done: list[Removal] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def use(self) -> DiskUse:
        return total_use(each.use for each in self.done)


@dataclass
class Remover:
    """Carries out plans; `tell` is called with each part that is gone. Its caller holds the lock for removals."""

    context: Context
    tell: Callable[[Removal], None]
    result: Removed = field(default_factory=Removed)
    # What could not be asked, as in a plan.
    _asked: Plan = field(default_factory=Plan)

    def prune(self, plan: Plan, *, older: float, keep: int) -> Removed:
        for job_id in dict.fromkeys([*plan.seen, *(each.job_id for each in plan.removals if each.job_id)]):
            if self._is_still_old(job_id, older):
                self._prune_job(plan, job_id, keep)
        self._remove_trees([each for each in plan.of(None) if each.what == TREES])
        self._remove_leftovers([each for each in plan.of(None) if each.what != TREES], older)
        return self.result

    def _is_still_old(self, job_id: str, older: float) -> bool:
        """Tell whether nobody has begun to use the job since it was planned; its files stay otherwise."""
        job = self.context.store.job(job_id)
        if job.ended and self.context.now() - job.updated_at > older:
            return True
        self.result.failed.append(f"{job_id} is {job.state} now, so nothing of it was removed")
        return False

    def _prune_job(self, plan: Plan, job_id: str, keep: int) -> None:
        sources = {name for _, name in starts_of_active_jobs(self.context).get(job_id, ())}
        job, before = self.context.store.job(job_id), len(self.result.failed)
        gone = [each for each in plan.of(job_id) if self._remove(job, _without(each, sources))]
        whole = job_id in plan.seen and len(self.result.failed) == before and not sources
        what = ", ".join(f"{each.what} on {shown_place(each.where)}" for each in gone)
        data = {"because": f"`rung prune` removed {what or 'nothing'}", "keep": keep, "whole": whole}
        with self.context.store.transaction():
            self.context.store.add_event(job_id, None, EventKind.PRUNED, data, at=self.context.now())

    def remove_jobs(self, plan: Plan, jobs: Sequence[Job], *, give_up_hosts: bool) -> Removed:
        for job in jobs:
            with self.context.store.transaction():
                refuse_needed(self.context, self.context.store.job(job.id))
                self.context.store.begin_removal(job.id, at=self.context.now())
        # Before the folders of the jobs: those say which trees they had.
        self._remove_trees(plan.of(None))
        for job in jobs:
            self._remove_job(plan, job, give_up_hosts=give_up_hosts)
        return self.result

    def _remove_job(self, plan: Plan, job: Job, *, give_up_hosts: bool) -> None:
        there = {each.where: each for each in plan.of(job.id)}
        hosts = Places(self.context, self._asked).on_hosts(job)
        left = [where for where in (*hosts, HERE) if not self._remove_from(job, where, there)]
        if HERE not in left and (give_up_hosts or not left):
            self._end(job)
            return
        with self.context.store.transaction():
            reason = f"being removed, and not yet gone from {' and '.join(left)}: run `rung rm {job.id}` again"
            self.context.store.set_reason(job.id, reason)

    def _remove_from(self, job: Job, where: str, there: dict[str, Removal]) -> bool:
        return self._remove(job, there.get(where) or Removal(job.id, where, "", (), DiskUse()), whole=True)

    def _end(self, job: Job) -> None:
        store = self.context.store
        with store.transaction():
            for attempt in store.attempts(job.id):
                if attempt.trial is not None:
                    store.put_attempt(replace(attempt, trial=replace(attempt.trial, folder_removed=True)))
            store.end_removal(job.id, at=self.context.now())

    def _remove(self, job: Job, removal: Removal, *, whole: bool = False) -> bool:
        """Remove files of a job from one place, or all of them; False: it could not be done."""
        places = Places(self.context, self._asked)
        try:
            place = next((each for each in places.of(job) if each.where == removal.where), None)
            if place is None:
                raise EngineError(self._asked.unreachable.get(removal.where, f"{removal.where}: cannot be asked"))
            if whole:
                place.storage.remove_all()
            else:
                place.storage.remove(removal.paths)
        except (EngineError, HostError) as error:
            self._failed(removal, error)
            return False
        self._done(removal)
        return True

    def _remove_trees(self, removals: Sequence[Removal]) -> None:
        for removal in removals:
            try:
                # Once more: a container may have been started since.
                trees = trees_on(self.context.engines, removal.where)
                free = {tree.id for tree in trees.list()}
                trees.remove([each for each in removal.paths if each in free])
            except (EngineError, HostError) as error:
                self._failed(removal, error)
            else:
                self._done(removal)

    def _remove_leftovers(self, removals: Sequence[Removal], older: float) -> None:
        """Remove what lies in RUNG_HOME itself; once more, only what is still old."""
        old = {
            path for each in plan_leftovers(self.context, older=older, now=self.context.now()) for path in each.paths
        }
        for removal in removals:
            try:
                remove_leftovers(self.context, [path for path in removal.paths if path in old])
            except EngineError as error:
                self._failed(removal, error)
            else:
                self._done(removal)

    def _failed(self, removal: Removal, error: RungError) -> None:
        self._asked.note(removal.where, removal.what, error)
        of = f" of {removal.job_id}" if removal.job_id else ""
        what = f"{removal.what}{of}".strip() or f"what {removal.job_id} has there"
        self.result.failed.append(f"{removal.where}: {what} could not be removed: {error}")

    def _done(self, removal: Removal) -> None:
        if removal.paths:
            self.result.done.append(removal)
            self.tell(removal)


def _without(removal: Removal, names: set[str]) -> Removal:
    """Leave out checkpoints that a job needs now."""
    kept = tuple(path for path in removal.paths if path.rpartition("/")[2] not in names)
    return removal if removal.what == TREES else replace(removal, paths=kept)
