"""Records how an attempt ended: succeeded, interrupted, cancelled, stopped, or with a fault to recover from."""

from __future__ import annotations

from dataclasses import replace

from rung.jobs.job import Attempt, Job, Verdict
from rung.jobs.model.fault import Fault
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.model.state import JobState
from rung.recovery.interruption.interruption import is_interruption, why_interrupted
from rung.runner.context import Context
from rung.runner.controller import log_watch
from rung.runner.controller.judge_run import RunJudge
from rung.runner.controller.log_watch import LogWatch
from rung.runner.controller.observe import had_finished
from rung.runner.seams.engine import Observation
from rung.runner.state import transitions
from rung.runner.state.store import Store
from rung.runner.trials.trial_supervisor import TrialSupervisor


class Ending:
    def __init__(self, context: Context, judge: RunJudge, trials: TrialSupervisor) -> None:
        self._context, self._judge, self._trials = context, judge, trials

    def record(
        self, job: Job, attempt: Attempt, paths: AttemptPaths, observation: Observation, watch: LogWatch
    ) -> None:
        """Write how an attempt ended; `watch` has read its log to the end."""
        store, at = self._context.store, self._context.now()
        stopping = job.state is JobState.STOPPING
        attempt = log_watch.with_end(attempt, observation, stopped=stopping, at=at)
        stopped = stopping and (attempt.is_trial or not had_finished(attempt, paths))
        fault = attempt.fault or (None if stopped else log_watch.fault_at_end(observation, watch))
        interrupted = is_interruption(attempt, fault)
        if job.cancel_requested and (stopping or interrupted or fault is not None):
            transitions.cancelled(store, job, attempt, at=at)
        elif attempt.is_trial:
            finished = self._trials.ended(job, attempt, watch.detector.history, fault)
            if finished is not None:
                self._finished(job, finished, watch)
        elif interrupted:
            why = why_interrupted(attempt.ended_by)
            transitions.interrupted(store, job, with_verdict(store, attempt), why, at=at)
        elif stopped and fault is None:
            transitions.stopped_in_health(store, job, attempt, at=at)
        elif fault is None:
            self._finished(job, replace(attempt, level_at=None), watch)
        else:
            self._faulted(job, attempt, fault, watch)

    def _finished(self, job: Job, attempt: Attempt, watch: LogWatch) -> None:
        store, at = self._context.store, self._context.now()
        missing = log_watch.shortfall(job.spec.success, attempt)
        judged = self._judge.at_end(job, with_verdict(store, attempt), watch.detector.history, missing)
        if isinstance(judged, Fault):
            self._faulted(
                job, replace(attempt, verdict=Verdict.NOT_LEARNING, verdict_why=judged.evidence), judged, watch
            )
        elif missing is not None:
            transitions.fell_short(store, job, judged, missing, at=at)
        else:
            transitions.succeeded(store, job, judged, at=at)

    def _faulted(self, job: Job, attempt: Attempt, fault: Fault, watch: LogWatch) -> None:
        recorded = attempt.fault is not None
        faulty = attempt if recorded else log_watch.with_fault(attempt, fault, watch)
        transitions.recovering(self._context.store, job, faulty, fault, fault_recorded=recorded, at=self._context.now())


def with_verdict(store: Store, attempt: Attempt) -> Attempt:
    """Return the attempt with the word that was written for it since it was read."""
    stored = store.attempts(attempt.job_id)[-1]
    return replace(attempt, verdict=stored.verdict, verdict_why=stored.verdict_why)
