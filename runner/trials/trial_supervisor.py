"""Supervises trials: stops one that is behind or over, lets the winner go on, and records what came of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rung.jobs.job import Attempt, Job, Outcome
from rung.jobs.model.fault import Fault
from rung.jobs.model.state import JobState
from rung.jobs.model.trial import BEHIND, SURVIVED, Trial
from rung.recovery.decide.treatments import climbs_ladder
from rung.recovery.interruption.interruption import fault_of_trial, is_interruption
from rung.recovery.monitors.learning import LossHistory
from rung.recovery.trials.between import lr_between
from rung.recovery.trials.decide_trials import most_trials, open_trials, with_own_run
from rung.recovery.trials.judge import Progress, is_slower_than_equals, progress
from rung.recovery.trials.own_run import MOST_READINGS, is_own_run
from rung.recovery.trials.sequence import lower_lr_to_try, next_index, to_repeat
from rung.runner.context import Context
from rung.runner.state import trial_transitions


class TrialSupervisor:
    def __init__(self, context: Context) -> None:
        self._context = context

    def follow(self, job: Job, attempt: Attempt, history: LossHistory) -> bool:
        """Stop a trial that is behind or over, or let it win; True: it has won and is the job's own run from now on."""
        trial, step = attempt.trial, attempt.furthest_step
        if trial is None or step is None or job.state is not JobState.RUNNING:
            return False
        store, at = self._context.store, self._context.now()
        others = self._others(attempt)
        found = progress(trial, readings_of(trial, history), step, others)
        survived = self._with_result(attempt, history, SURVIVED)
        if found is Progress.LEADS and self._is_slower_on_a_gpu(survived, others):
            found = Progress.OVER
        if found is Progress.LEADS and can_go_on(job, survived, others, store.attempts(job.id)):
            trial_transitions.won(store, survived, others, at=at)
            return True
        if found is not Progress.GOES_ON:
            verdict = BEHIND if found is Progress.BEHIND else SURVIVED
            trial_transitions.stopping(store, job, self._with_result(attempt, history, verdict), at=at)
        return False

    def ended(self, job: Job, attempt: Attempt, history: LossHistory, fault: Fault | None) -> Attempt | None:
        """Record the end of a trial; return the attempt if it finished the whole run and is the best so far."""
        trial, store, at = attempt.trial, self._context.store, self._context.now()
        assert trial is not None
        over = self.result(attempt, history, fault)
        reached = (attempt.furthest_step or 0) >= trial.until
        others = self._others(attempt)
        found = progress(trial, readings_of(trial, history), trial.until, others)
        finished = over.fault is None and not reached and job.state is not JobState.STOPPING
        if finished and found is Progress.LEADS:
            return trial_transitions.won(store, over, others, at=at)
        trial_transitions.over(store, job, over, at=at)
        return None

    def judge_beside(self, attempt: Attempt, history: LossHistory) -> Attempt | None:
        """Return a trial that runs beside the last attempt with its result, if it is behind or over."""
        trial, step = attempt.trial, attempt.furthest_step
        assert trial is not None
        if step is None:
            return None
        ended = [each for each in self._others(attempt) if each.outcome is not Outcome.PENDING]
        found = progress(trial, readings_of(trial, history), step, ended)
        if found is Progress.GOES_ON:
            return None
        return self._with_result(attempt, history, BEHIND if found is Progress.BEHIND else SURVIVED)

    def result(self, attempt: Attempt, history: LossHistory | None, fault: Fault | None) -> Attempt:
        """Return a trial that has ended with its result; one that was told to end there has no fault."""
        trial = attempt.trial
        assert trial is not None
        if is_interruption(attempt, fault):
            fault = fault_of_trial(attempt)
        if fault is not None and (attempt.furthest_step or 0) >= trial.until and not climbs_ladder(fault):
            fault = None
        ended = [each for each in self._others(attempt) if each.outcome is not Outcome.PENDING]
        is_behind = progress(trial, readings_of(trial, history), trial.until, ended) is Progress.BEHIND
        verdict = trial.verdict or (_failed(fault) if fault else BEHIND if is_behind else SURVIVED)
        return self._with_result(replace(attempt, fault=fault), history, verdict)

    def _is_slower_on_a_gpu(self, survived: Attempt, others: Sequence[Attempt]) -> bool:
        """Return whether another trial is as good and faster, where the times on a GPU tell that."""
        if survived.trial is None or not is_slower_than_equals(survived.trial, others):
            return False
        return bool(survived.gpus) or (not survived.is_remote and self._context.gpu_here() is not None)

    def _others(self, attempt: Attempt) -> list[Attempt]:
        attempts: Sequence[Attempt] = self._context.store.attempts(attempt.job_id)
        found = with_own_run(attempts, open_trials(attempts))
        return [each for each in found if each.number != attempt.number]

    def _with_result(self, attempt: Attempt, history: LossHistory | None, verdict: str) -> Attempt:
        trial = attempt.trial
        assert trial is not None
        ended = replace(attempt, ended_at=attempt.ended_at or self._context.now())
        steps, seconds = (attempt.furthest_step or 0) - (attempt.first_step or 0), ended.seconds_of_progress
        ms = round(1000 * seconds / steps, 2) if seconds is not None and steps > 0 else None
        return replace(
            attempt, trial=replace(trial, readings=readings_of(trial, history), ms=trial.ms or ms, verdict=verdict)
        )


def can_go_on(job: Job, attempt: Attempt, others: Sequence[Attempt], attempts: Sequence[Attempt]) -> bool:
    """Return whether the best trial so far becomes the job's own run: no other one is left to try."""
    trial, over = attempt.trial, [*others, attempt]
    if trial is None or not trial.may_go_on or to_repeat(over) is not None:
        return False
    ran = [each for each in over if not is_own_run(each)]
    another = lower_lr_to_try(attempt, ran, attempts) or lr_between(attempt, ran, attempts, most_trials(job))
    return next_index(trial, over) is None and another is None


def readings_of(trial: Trial, history: LossHistory | None) -> tuple[tuple[int, float], ...]:
    """Return the readings of a trial over its window, few enough to store, and at the same steps for all trials."""
    found = history.readings(trial.start, trial.until) if history is not None else []
    every = 1 + (trial.until - trial.start) // MOST_READINGS if len(found) > MOST_READINGS else 1
    return tuple((step, float(f"{loss:.6g}")) for step, loss in found if step % every == 0)


def _failed(fault: Fault) -> str:
    return f"{fault.kind} at step {fault.step}" if fault.step is not None else f"{fault.kind}"
