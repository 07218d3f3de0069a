"""Supervises the trials that run beside the last attempt of a job, on GPUs that nobody else needs.

The state of a job is about its last attempt, which the Supervisor follows. A trial beside it changes only its own
attempt. Where the job ends or its host is lost, it becomes an orphan, and OrphanSweep stops it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rung.jobs.job import Attempt, Job, beside_last
from rung.jobs.model.errors import EngineError, HostError, RungError
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.state import JobState
from rung.runner.checkpoints.stage import begin
from rung.runner.context import Context
from rung.runner.controller import log_watch
from rung.runner.controller.observe import Look, observe
from rung.runner.controller.stall_watch import StallWatch
from rung.runner.launch.request import find_secrets
from rung.runner.seams.engine import Observation, Presence, Request
from rung.runner.series.write import SeriesWriter
from rung.runner.state import transitions, trial_transitions
from rung.runner.task_pool import Lane
from rung.runner.trials.trial_supervisor import TrialSupervisor

# Between two questions about a trial; one that cannot be asked now is left alone for longer.
POLL_SECONDS, BACK_OFF_SECONDS = 0.2, 1.0


def task_key(job_id: str, number: int) -> str:
    return f"trial {job_id} {number}"


class SideTrials:
    def __init__(self, context: Context, why_stay: Callable[[Job, str], str]) -> None:
        self._context, self._why_stay, self._trials = context, why_stay, TrialSupervisor(context)
        self._watches: dict[str, log_watch.LogWatch] = {}
        self._stalls = StallWatch(context)

    def job_ended(self, job_id: str) -> None:
        """Drop what is kept about the trials of a job; those that still run are orphans now."""
        self._stalls.forget(job_id)
        trials = task_key(job_id, 0).removesuffix("0")
        self._watches = {key: watch for key, watch in self._watches.items() if not key.startswith(trials)}

    def turn(self, job: Job) -> None:
        """Give every trial beside the last attempt of a job its turn."""
        if job.spec.recovery.trials is None or not job.spec.is_remote:
            return
        for number in [each.number for each in self._beside(job)]:
            self._context.wake_in(job.id, POLL_SECONDS)
            # The turn of the one before may have given up all of them.
            for attempt in [each for each in self._beside(job) if each.number == number]:
                self._turn(job, attempt, task_key(job.id, number))

    def _beside(self, job: Job) -> list[Attempt]:
        return beside_last(self._context.store.attempts(job.id))

    def _turn(self, job: Job, attempt: Attempt, key: str) -> None:
        tasks = self._context.tasks
        task = tasks.take(key)
        if task is not None:
            error = task.error
            if error is not None:
                task.on_error(job, attempt, error)
            else:
                task.on_result(job, attempt, task.future.result())
        elif not tasks.busy(key) and not self._context.is_backing_off(key):
            self._ask(job, attempt, key)

    def _ask(self, job: Job, attempt: Attempt, key: str) -> None:
        context, request = self._context, self._context.request(job, attempt)
        try:
            engine = context.engines.of(attempt)
        except HostError as error:
            self._unreachable(job, attempt, error)  # its host is no longer in the list
            return
        assert attempt.trial is not None
        stopping = attempt.trial.verdict or attempt.fault is not None
        late = (
            context.lasting(("stopping", job.id, attempt.number)).seconds > job.spec.recovery.grace
            if stopping
            else None
        )
        started = attempt.started_at is not None
        work = partial(observe, engine, request.paths, self._watch(job, request, key), late, started)
        context.tasks.submit(key, attempt.host, work, (self._observed, self._unreachable), wakes=job.id)
        context.back_off(key, POLL_SECONDS, wakes=job.id)

    def _watch(self, job: Job, request: Request, key: str) -> log_watch.LogWatch:
        if key not in self._watches:
            series = SeriesWriter(request.paths, self._context.now)
            self._watches[key] = log_watch.LogWatch(request.paths.log, job, warns=False, series=series)
        return self._watches[key]

    def _observed(self, job: Job, attempt: Attempt, look: Look) -> None:
        observation, request = look.observation, self._context.request(job, attempt)
        presence = observation.presence
        if presence in (Presence.UNREACHABLE, Presence.WAITING):
            self._stalls.count_anew(attempt)
        if presence is Presence.UNREACHABLE:
            self._unreachable(job, attempt, EngineError(observation.detail))
            return
        self._context.over(("away", job.id, attempt.number))
        if presence is Presence.ABSENT:
            self._start(job, attempt, request)
        elif presence is Presence.RUNNING or (presence is not Presence.WAITING and not look.more):
            if attempt.started_at is None:
                attempt = replace(attempt, started_at=observation.started_at or self._context.now())
                transitions.started(self._context.store, attempt, self._context.how_started(attempt, request))
            follow = self._follow if presence is Presence.RUNNING else partial(self._ended, observation)
            follow(job, attempt, self._watch(job, request, task_key(job.id, attempt.number)))

    def _unreachable(self, job: Job, attempt: Attempt, error: RungError) -> None:
        """Wait for the host; the trials are given up with it where the last attempt has ended and shows nothing."""
        self._context.back_off(task_key(job.id, attempt.number), BACK_OFF_SECONDS, wakes=job.id)
        away, bound = self._context.lasting(("away", job.id, attempt.number)), job.spec.recovery.host_lost_after
        late = (
            bound is not None and away.seconds >= bound and self._context.store.job(job.id).state is JobState.RECOVERING
        )
        if late and not self._why_stay(job, attempt.host):
            trial_transitions.trials_lost(self._context.store, job, away.seconds, at=self._context.now())

    def _start(self, job: Job, attempt: Attempt, request: Request) -> None:
        context, key = self._context, task_key(job.id, attempt.number)
        try:
            secrets = find_secrets(request.secrets, context.paths, context.environ)
            work = begin(context, job, attempt, request, secrets)
        except (EngineError, HostError) as error:
            self._not_started(job, attempt, error)
            return
        callbacks = (lambda *_: None, self._not_started)
        context.tasks.submit(key, attempt.host, work, callbacks, lane=Lane.SLOW, wakes=job.id)

    def _not_started(self, job: Job, attempt: Attempt, error: RungError) -> None:
        if isinstance(error, HostError):
            self._unreachable(job, attempt, error)
            return
        fault = Fault(FaultKind.INFRA_FAULT, f"it could not be started: {error}")
        self._end(replace(attempt, ended_at=self._context.now()), fault, None)

    def _follow(self, job: Job, attempt: Attempt, watch: log_watch.LogWatch) -> None:
        store, at = self._context.store, self._context.now()
        seen = log_watch.with_progress(attempt, watch, job.spec.success, at)
        seen = replace(seen, longest_gap=self._stalls.longest_gap(attempt))
        assert attempt.trial is not None
        stopping = attempt.trial.verdict or attempt.fault is not None
        judged = None if stopping else self._trials.judge_beside(seen, watch.detector.history)
        fault = None if stopping else watch.fault or self._stalled(job, seen, watch)
        if fault is not None:
            trial_transitions.fault_beside(store, log_watch.with_fault(seen, fault, watch), at=at)
        elif judged is not None:
            with store.transaction():
                store.put_attempt(judged)
        elif seen != attempt:
            store.keep_progress(seen)

    def _stalled(self, job: Job, attempt: Attempt, watch: log_watch.LogWatch) -> Fault | None:
        """Return the fault of a trial that shows no sign of life. Nobody asks where it stands: it is only a trial."""
        evidence = self._stalls.too_silent(job, attempt, watch)
        return Fault(FaultKind.STALLED, evidence, step=attempt.furthest_step) if evidence else None

    def _ended(self, observation: Observation, job: Job, attempt: Attempt, watch: log_watch.LogWatch) -> None:
        at = self._context.now()
        seen = log_watch.with_progress(attempt, watch, job.spec.success, at)
        assert seen.trial is not None
        stopped = bool(seen.trial.verdict)
        seen = log_watch.with_end(seen, observation, stopped=stopped, at=at)
        fault = seen.fault or (None if stopped else log_watch.fault_at_end(observation, watch))
        self._end(seen, fault, watch)

    def _end(self, attempt: Attempt, fault: Fault | None, watch: log_watch.LogWatch | None) -> None:
        key, at = task_key(attempt.job_id, attempt.number), self._context.now()
        history = watch.detector.history if watch is not None else None
        ended = self._trials.result(attempt, history, fault)
        trial_transitions.over_beside(self._context.store, ended, at=at)
        self._watches.pop(key, None)
        self._stalls.forget(attempt.job_id)
