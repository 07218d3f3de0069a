"""Stops a cured run to try its first precision or lr, or one place less in FP32, once a healthy checkpoint allows it.

The checkpoint is verified while the run goes on.
"""

from __future__ import annotations

from rung.jobs.job import Job, main_line
from rung.recovery.decide import step_back
from rung.runner.checkpoints.search import CheckpointSearch
from rung.runner.context import Context
from rung.runner.state import transitions

# A run that has no checkpoint past its fault yet is checked again after this.
RETRY_SECONDS = 30.0


class StepBack:
    def __init__(self, context: Context, checkpoint_search: CheckpointSearch) -> None:
        self._context, self._checkpoint_search = context, checkpoint_search

    def consider(self, job: Job) -> None:
        """Stop a running job that may step back; do nothing if it is too early or was not asked for."""
        if job.spec.recovery.step_back is None or self._context.is_backing_off(f"step back {job.id}"):
            return
        attempts = main_line(self._context.store.attempts(job.id)[job.settled :])
        if not step_back.is_due(job, attempts):
            return
        found = self._checkpoint_search.find(job, attempts, before=attempts[-1].furthest_step)
        if found is None:
            return
        # The next search must find the checkpoints that are written from now on.
        self._checkpoint_search.forget(job.id)
        if step_back.is_possible(job, attempts, found):
            because = step_back.describe_step_back(job, attempts)
            transitions.stopping_to_step_back(self._context.store, job, attempts[-1], because, at=self._context.now())
        else:
            self._context.back_off(f"step back {job.id}", RETRY_SECONDS)
