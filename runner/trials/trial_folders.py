"""Removes the folders of trials that did not win, once the trials are decided or the job has ended.

What is left to remove follows from the store, so a controller that was killed before it is done by the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import RungError
from rung.recovery.trials.leftovers import unneeded_trials
from rung.runner.context import Context
from rung.runner.state import trial_transitions
from rung.runner.task_pool import Lane

# Between two looks at a job that has not ended: its losers have time.
LOOK_SECONDS = 1.0
# After a host did not answer, or could not remove a folder.
RETRY_SECONDS = 10.0


class TrialFolders:
    def __init__(self, context: Context) -> None:
        self._context = context
        # The jobs that may have something to remove; None: no job was looked at yet.
        self._jobs: set[str] | None = None
        # The active jobs that had no trials, as they were then: a job is written with each new attempt.
        self._without: dict[str, Job] = {}

    def turn(self, active: Sequence[Job]) -> int:
        """Remove what is due, in the task pool; return how many removals are under way."""
        if self._jobs is None:
            # An earlier controller may have been killed before it removed them.
            self._jobs = self._context.store.jobs_with_trials()
        others = [job for job in active if job.id not in self._jobs and self._without.get(job.id) is not job]
        self._jobs |= {job.id for job in others if self._has_trials(job)}
        self._without = {job.id: job for job in active if job.id not in self._jobs}
        return sum(self._tidy(job_id) for job_id in sorted(self._jobs))

    def _has_trials(self, job: Job) -> bool:
        return any(each.is_trial for each in self._context.store.attempts(job.id))

    def _tidy(self, job_id: str) -> int:
        store, key = self._context.store, f"trial folders {job_id}"
        job = store.job(job_id)
        if not job.ended and self._context.is_backing_off(key):
            return 0
        self._context.back_off(key, LOOK_SECONDS)
        due = unneeded_trials(job, store.attempts(job_id))
        if job.ended and not due and self._jobs is not None:
            self._jobs.discard(job_id)
        # What may still run on a host that was given up is ended first.
        orphans = {(each.job_id, each.attempt) for each in store.orphans()} if due else set()
        return sum(self._remove(job, each) for each in due if (job_id, each.number) not in orphans)

    def _remove(self, job: Job, attempt: Attempt) -> bool:
        """Remove the folder of one trial; True: its host is at it."""
        key = f"trial folder {job.id} {attempt.number}"
        task = self._context.tasks.take(key)
        if task is not None:
            self._done(attempt, key, task.future.exception())
        elif not self._context.tasks.busy(key) and not self._context.is_backing_off(key):
            self._begin(job, attempt, key)
        return self._context.tasks.busy(key)

    def _begin(self, job: Job, attempt: Attempt, key: str) -> None:
        context = self._context
        try:
            engine, request = context.engines.of(attempt), context.request(job, attempt)
        except RungError as error:
            self._done(attempt, key, error)
            return
        work = partial(engine.remove_residence, request, attempt.residence)
        context.tasks.submit(key, attempt.host, work, lane=Lane.SPARE)

    def _done(self, attempt: Attempt, key: str, error: BaseException | None) -> None:
        if error is None:
            trial_transitions.folder_removed(self._context.store, attempt)
        else:
            # It harms nobody there, so no error of the job: it is tried again, also by the next controller.
            self._context.back_off(key, RETRY_SECONDS)
