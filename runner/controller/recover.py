"""Recovers jobs between two attempts: searches their checkpoints, decides, and writes the next attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.fault import Fault
from rung.jobs.model.gpu import Gpu
from rung.recovery.decide.decide import Decision, Relaunch, Wait
from rung.recovery.decide.step_back import decide_step_back
from rung.recovery.evidence.read_ledger import read_ledger
from rung.recovery.interruption.interruption import decide_interruption
from rung.recovery.ledger.ledger import EMPTY, Ledger
from rung.recovery.trials.decide_trials import decide_with_trials
from rung.recovery.trials.look_again import decide_look_again, latest_start
from rung.runner.checkpoints.search import CheckpointSearch
from rung.runner.context import Context
from rung.runner.placement.placement import Placer
from rung.runner.state import next_attempt, transitions
from rung.runner.trials.trial_round import TrialRound


class Recovery:
    """Takes a RECOVERING job one step further: what it needs, it asks for, and goes on when that is known."""

    def __init__(self, context: Context, checkpoint_search: CheckpointSearch, placer: Placer) -> None:
        self._context, self._checkpoint_search, self._placer = context, checkpoint_search, placer
        self._trials = TrialRound(context, checkpoint_search, placer.spare_gpus)

    def advance(self, job: Job) -> None:
        store, at = self._context.store, self._context.now()
        if job.cancel_requested:
            transitions.cancelled_between(store, job, at=at)
            self._checkpoint_search.forget(job.id)
            return
        if self._placer.is_moving(job):
            return
        attempts = store.attempts(job.id)[job.settled :]
        last = attempts[-1]
        if self._trials.advance(job, attempts, self.gpu(last)):
            return
        before = latest_start(last.level_at, last.readings) if last.level_at is not None else None
        checkpoints = self._checkpoint_search.find(job, attempts, before=before)
        if checkpoints is None:
            return
        elsewhere = self._placer.elsewhere(job, last.host) if last.is_remote else []
        interrupted = decide_interruption(job, attempts, checkpoints, elsewhere)
        if isinstance(interrupted, Fault):
            next_attempt.write_fault(store, last, interrupted, at=at)
            return
        decision = (
            interrupted
            or decide_look_again(job, attempts, checkpoints, self.gpu(last), elsewhere)
            or decide_step_back(job, main_line(attempts), checkpoints, elsewhere)
            or decide_with_trials(job, attempts, checkpoints, self.gpu(last), elsewhere, self._ledger(job))
        )
        if isinstance(decision, Wait):
            self._checkpoint_search.wait(job, decision.because)
        elif isinstance(decision, Relaunch) and self._placer.moves(decision, last):
            self._placer.move(job, decision)
        else:
            self._carry_out(job, decision, attempts)

    def _carry_out(self, job: Job, decision: Decision, attempts: Sequence[Attempt]) -> None:
        if isinstance(decision, Relaunch) and decision.trial is not None:
            if self._trials.begin(job, attempts, decision):
                self._checkpoint_search.forget(job.id)
            return
        residence = next_attempt.next_residence(attempts, attempts[-1].host)
        placement = replace(next_attempt.same_placement(attempts[-1]), residence=residence)
        next_attempt.carry_out(self._context.store, job, decision, placement, at=self._context.now())
        self._checkpoint_search.forget(job.id)

    def _ledger(self, job: Job) -> Ledger:
        """Return what each rung did for all jobs; needed only for a job with `ladder: auto`."""
        if not job.spec.recovery.auto:
            return EMPTY
        return read_ledger(self._context.store.attempts_by_job(), self._context.gpu_here())

    def gpu(self, last: Attempt) -> Gpu | None:
        """Return the GPU that a job ran on last."""
        if last.gpus:
            return last.gpus[0]
        return None if last.is_remote else self._context.gpu_here()
