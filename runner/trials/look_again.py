"""Stops a run whose loss is level, so that a lower lr is tried.

A run without a fault is looked at early, from scratch; a cured one also later, from one of its checkpoints. Where it
has not reported the checkpoints that it saved, one is looked for while it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rung.jobs.job import Attempt, Job
from rung.jobs.model.gpu import Gpu
from rung.recovery.monitors.learning import LossHistory
from rung.recovery.trials.first_look import doubtful_steps
from rung.recovery.trials.look_again import has_saved, latest_start, level_steps, look_again
from rung.recovery.trials.own_run import last_readings
from rung.runner.checkpoints.search import CheckpointSearch
from rung.runner.context import Context
from rung.runner.state import transitions


class LookAgain:
    def __init__(
        self, context: Context, checkpoint_search: CheckpointSearch, gpu: Callable[[Attempt], Gpu | None]
    ) -> None:
        self._context, self._checkpoint_search, self._gpu = context, checkpoint_search, gpu
        # The last level step of each attempt from which nothing could be tried.
        self._passed: dict[tuple[str, int], int] = {}

    def job_ended(self, job_id: str) -> None:
        self._passed = {key: step for key, step in self._passed.items() if key[0] != job_id}

    def consider(self, job: Job, last: Attempt, history: LossHistory) -> bool:
        """Stop a running job whose loss is level; False: it falls, or there is nothing to try."""
        asked = job.spec.recovery
        if asked.trials is None or last.made_all_steps:
            return False
        attempts = [*self._context.store.attempts(job.id)[job.settled : -1], last]
        # Asked for every line of every run: a first look is not wanted, and a later one comes after trials only.
        if asked.not_learning != "act" and not any(each.trial for each in attempts):
            return False
        gpu = self._gpu(last)
        doubtful = next(iter(doubtful_steps(job, attempts, history, gpu)), None)
        if doubtful is not None:
            because = f"the loss is level at step {doubtful} and still high: a lower lr is tried from scratch"
            self._stop(job, replace(last, level_at=doubtful, readings=last_readings(history, doubtful)), because)
            return True
        key = (job.id, last.number)
        passed = self._passed.get(key, 0)
        step = next((step for step in level_steps(job, attempts, history, gpu) if step > passed), None)
        if step is None:
            return False
        stopped = replace(last, level_at=step, readings=last_readings(history, step))
        if not has_saved(stopped):
            found = self._checkpoint_search.find(job, attempts, before=latest_start(step, stopped.readings))
            if found is None:
                return True  # the search runs
            # The next search must find the checkpoints that are written from now on.
            self._checkpoint_search.forget(job.id)
            if look_again(job, [*attempts[:-1], stopped], found, gpu) is None:
                self._passed[key] = step
                return False
        because = f"the loss is level at step {step} after a cure: a lower lr is tried from an earlier checkpoint"
        self._stop(job, stopped, because)
        return True

    def _stop(self, job: Job, stopped: Attempt, because: str) -> None:
        transitions.stopping_at_level(self._context.store, job, stopped, because, at=self._context.now())
