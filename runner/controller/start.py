"""Starts attempts, and stops those that a person cancelled before they started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import EngineError, HostError, NeverTaken, RungError
from rung.jobs.model.fault import Fault, FaultKind
from rung.runner.checkpoints.set_aside import CheckpointMover
from rung.runner.checkpoints.stage import begin, begin_here
from rung.runner.checkpoints.whole_folder import LastSeen
from rung.runner.context import Context
from rung.runner.controller.log_watch import AttemptView
from rung.runner.controller.observe import stop_unstarted
from rung.runner.launch.request import find_secrets
from rung.runner.seams.engine import Observation, Presence
from rung.runner.state import transitions
from rung.runner.task_pool import Lane

BACK_OFF_SECONDS = 1.0


class Starter:
    """`on_unreachable` is told that a host does not answer, `forget` that an attempt is over."""

    def __init__(
        self,
        context: Context,
        last_seen: LastSeen,
        on_unreachable: Callable[[Job, RungError], None],
        forget: Callable[[str], None],
    ) -> None:
        self._context, self._on_unreachable, self._forget = context, on_unreachable, forget
        self._set_aside = CheckpointMover(context, last_seen)

    def job_ended(self, job_id: str) -> None:
        self._set_aside.job_ended(job_id)

    def start(self, job: Job, attempt: Attempt, view: AttemptView) -> None:
        """Take the next step to the start of an attempt that its engine does not have yet."""
        context = self._context
        if job.cancel_requested:
            # A killed controller may have left a wrapper that starts now: it finds the stop mark and ends.
            self.stop_unstarted(job, attempt)
            return
        if job.refused:
            transitions.not_started(context.store, job, attempt, job.refused, at=context.now())
            return
        view.asked_for = None  # after the task of this step, the engine is asked at once
        request = context.request(job, attempt)
        if self._set_aside.pending(attempt) and not self._set_aside.send(job, attempt, request, self.on_error):
            return
        try:
            secrets = find_secrets(request.secrets, context.paths, context.environ)
        except EngineError as error:
            transitions.not_started(context.store, job, attempt, str(error), at=context.now())
            return
        if attempt.is_remote:
            context.set_reason(job, f"{attempt.where} {'are' if attempt.members else 'is'} starting it")
        beginning = (begin if attempt.is_remote else begin_here)(context, job, attempt, request, secrets)
        on_error = self.on_error if attempt.is_remote else partial(self._on_error_here, attempt)
        context.tasks.submit(job.id, attempt.host, beginning, (lambda job, _: None, on_error), lane=Lane.SLOW)

    def _on_error_here(self, attempt: Attempt, job: Job, error: RungError) -> None:
        transitions.not_started(self._context.store, job, attempt, str(error), at=self._context.now())

    def on_error(self, job: Job, error: RungError) -> None:
        """Count it as a fault of the host if it answers and cannot start the attempt; another host may be able to."""
        if isinstance(error, HostError):
            # Its host has just answered: it is the host of the checkpoint, or the next observation tells.
            self._context.set_reason(job, f"it cannot be started yet: {error}")
            self._context.back_off(job.id, BACK_OFF_SECONDS)
            return
        at, attempt = self._context.now(), self._context.store.attempts(job.id)[-1]
        if isinstance(error, NeverTaken):
            # A person has to change the request: no try and no machine is counted.
            transitions.not_started(self._context.store, job, attempt, str(error), at=at)
            self._forget(job.id)
            return
        fault = Fault(FaultKind.INFRA_FAULT, f"it could not be started: {error}")
        faulty = replace(attempt, fault=fault, ended_at=at)
        transitions.recovering(self._context.store, job, faulty, fault, fault_recorded=False, at=at)
        self._forget(job.id)

    def stop_unstarted(self, job: Job, attempt: Attempt) -> None:
        context = self._context
        work = partial(stop_unstarted, context.engines.of(attempt), context.request(job, attempt).paths)
        context.call_engine(job, attempt, work, self._on_stopped, self._on_unreachable)

    def _on_stopped(self, job: Job, observation: Observation) -> None:
        if observation.presence is Presence.ABSENT:
            attempt = self._context.store.attempts(job.id)[-1]
            transitions.cancelled(self._context.store, job, attempt, at=self._context.now())
