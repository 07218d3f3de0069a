"""Supervises an attempt from its launch to its end: starts it, reads its log, stops it, records how it ended.

The engine of the attempt is called at once on this machine, and in the task pool for a host. A host that does not
answer is shown as the job's reason; nothing is stopped or started because of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial

from rung.jobs.job import Attempt, Job
from rung.jobs.model.engine import PlacedBy
from rung.jobs.model.errors import EngineError, HostError, HostUnreachable, RungError
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import not_taken
from rung.jobs.model.state import JobState
from rung.recovery.monitors.learning import LossHistory
from rung.runner.checkpoints.set_aside import CheckpointMover
from rung.runner.checkpoints.stage import begin, begin_here
from rung.runner.context import Context
from rung.runner.controller import log_watch
from rung.runner.controller.ending import Ending, with_verdict
from rung.runner.controller.judge_run import RunJudge
from rung.runner.controller.log_watch import AttemptView, LogWatch
from rung.runner.controller.observe import observe, stop_unstarted
from rung.runner.controller.stall_watch import StallWatch
from rung.runner.launch.request import find_secrets
from rung.runner.seams.engine import Observation, Presence, Request
from rung.runner.series.write import SeriesWriter
from rung.runner.state import transitions
from rung.runner.trials.trial_supervisor import TrialSupervisor

# How often progress is written to the store while nothing else happens.
PROGRESS_SECONDS = 1.0
# Between two observations of an attempt on a host, times the number of attempts, so that many of them load it less.
POLL_SECONDS = 0.01
BACK_OFF_SECONDS = 1.0
OnHealthy = Callable[[Job, Attempt, LossHistory], None]


class Supervisor:
    """Supervises attempts. `why_stay` tells why a job stays with a lost host; `on_healthy` is called for good runs."""

    def __init__(self, context: Context, why_stay: Callable[[Job, str], str], on_healthy: OnHealthy) -> None:
        self._context, self._why_stay, self._on_healthy = context, why_stay, on_healthy
        self._views: dict[str, AttemptView] = {}
        self._set_aside = CheckpointMover(context)
        self._judge, self._trials = RunJudge(context), TrialSupervisor(context)
        self._ending = Ending(context, self._judge, self._trials)
        self._stalls = StallWatch(context)
        # The jobs whose host does not answer now.
        self.unreachable: set[str] = set()

    def forget(self, job_id: str) -> None:
        """Drop what is kept in memory about a job; its log is read again from the start."""
        self._views.pop(job_id, None)
        self._stalls.forget(job_id)
        self.unreachable.discard(job_id)

    def supervise(self, job: Job) -> None:
        context = self._context
        attempt = self._last(job)
        if self._is_delayed(job, attempt):
            return
        request = context.request(job, attempt)
        try:
            engine = context.engines.of(attempt)
        except HostError as error:
            self._on_unreachable(job, error)  # its host is no longer in the list
            return
        view = self._view(job, attempt, request)
        stop = self._grace_over(job, attempt) if job.state is JobState.STOPPING else None
        started = attempt.is_remote and attempt.started_at is not None
        work = partial(observe, engine, request.paths, view.watch, stop, started)
        context.call_engine(job, attempt, work, self._on_observed, self._on_unreachable)
        if attempt.is_remote:
            context.back_off(job.id, POLL_SECONDS * len(self._views))

    def _is_delayed(self, job: Job, attempt: Attempt) -> bool:
        """Tell whether an attempt waits for its launch after a fault of the machine."""
        if attempt.not_before is None or attempt.started_at is not None or job.cancel_requested:
            return False
        # Both were written at one moment: their difference is the delay, however the clock was set since.
        delay = attempt.not_before - job.updated_at
        return self._context.lasting(("delay", job.id, attempt.number)).seconds < delay

    def _grace_over(self, job: Job, attempt: Attempt) -> bool:
        return self._context.lasting(("stopping", job.id, attempt.number)).seconds > job.spec.recovery.grace

    def _last(self, job: Job) -> Attempt:
        return self._context.store.attempts(job.id)[-1]

    def _view(self, job: Job, attempt: Attempt, request: Request) -> AttemptView:
        view = self._views.get(job.id)
        if view is None or view.number != attempt.number:
            warns = not (attempt.is_trial or attempt.left_alone)
            series = SeriesWriter(request.paths, self._context.now)
            watch = LogWatch(request.paths.log, job, warns=warns, warns_after=attempt.tried_until, series=series)
            view = self._views[job.id] = AttemptView(attempt.number, watch)
        return view

    # Observing

    def _on_observed(self, job: Job, observation: Observation) -> None:
        attempt = self._last(job)
        if observation.presence is Presence.UNREACHABLE:
            self._on_unreachable(job, HostUnreachable(observation.detail))
            return
        self.unreachable.discard(job.id)
        if attempt.unreachable_since is not None:
            away = self._context.lasting(("away", job.id, attempt.number)).seconds
            attempt = transitions.answers_again(self._context.store, attempt, away, at=self._context.now())
        self._context.over(("away", job.id, attempt.number))
        if observation.presence is Presence.WAITING:
            self._stalls.count_anew(attempt)
            self._context.set_reason(job, observation.detail)
            if job.cancel_requested and attempt.started_at is None and attempt.engine.placed_by is PlacedBy.SITE:
                # It waits in the queue of its site, which takes it out of there.
                self._stop_unstarted(job, attempt)
            elif job.cancel_requested and attempt.started_at is not None and job.state is not JobState.STOPPING:
                transitions.stopping_for_person(self._context.store, job, at=self._context.now())
            return
        request = self._context.request(job, attempt)
        if observation.presence is Presence.ABSENT:
            self._start(job, attempt, request)
            return
        if attempt.started_at is None:
            attempt = log_watch.with_start(attempt, observation, self._context.now())
            transitions.started(self._context.store, attempt, request.argv)
        if observation.presence is Presence.RUNNING:
            self._follow(job, attempt, request)
        else:
            self._on_ended(job, attempt, request, observation)

    def _on_unreachable(self, job: Job, error: RungError) -> None:
        """Show that the host does not answer; after host_lost_after the job moves to another host, if there is one."""
        attempt = self._last(job)
        self._stalls.count_anew(attempt)
        if not attempt.is_remote:
            self._context.set_reason(job, str(error))
            return
        if attempt.unreachable_since is None:
            attempt = transitions.out_of_reach(self._context.store, attempt, str(error), at=self._context.now())
        self.unreachable.add(job.id)
        self._context.back_off(job.id, BACK_OFF_SECONDS)
        away, bound = self._context.lasting(("away", job.id, attempt.number)), job.spec.recovery.host_lost_after
        late = bound is not None and away.seconds >= bound
        stays = self._why_stay(job, attempt.host) if late and not job.cancel_requested else ""
        if late and not stays:
            transitions.host_lost(self._context.store, job, attempt, away.seconds, at=self._context.now())
            self.forget(job.id)
            return
        clock = datetime.fromtimestamp(attempt.unreachable_since or away.since).strftime("%H:%M:%S")
        detail = str(error).removeprefix(f"{attempt.host}: ")
        more = f"; {stays}, so it waits for this one" if stays else ""
        self._context.set_reason(
            job, f"{attempt.host} is unreachable since {clock} ({detail}); the job is left as it is{more}"
        )

    # Starting

    def _start(self, job: Job, attempt: Attempt, request: Request) -> None:
        context = self._context
        if job.cancel_requested:
            # A killed controller may have left a wrapper that starts now: it finds the stop mark and ends.
            self._stop_unstarted(job, attempt)
            return
        if job.refused:
            transitions.not_started(context.store, job, attempt, job.refused, at=context.now())
            return
        if self._set_aside.pending(attempt):
            self._set_aside.send(job, attempt, request, self._on_start_error)
            if self._set_aside.pending(attempt):
                return  # a task on the host does it; a later turn goes on
        try:
            secrets = find_secrets(request.secrets, context.paths, context.environ)
        except EngineError as error:
            transitions.not_started(context.store, job, attempt, str(error), at=context.now())
            return
        if not attempt.is_remote:
            context.call_engine(
                job,
                attempt,
                begin_here(context, job, attempt, request, secrets),
                lambda job, _: None,
                lambda job, error: transitions.not_started(context.store, job, attempt, str(error), at=context.now()),
            )
            return
        context.set_reason(job, f"{attempt.host} is starting it")
        beginning = begin(context, job, attempt, request, secrets)
        context.tasks.submit(job.id, attempt.host, beginning, (lambda job, _: None, self._on_start_error), slow=True)

    def _stop_unstarted(self, job: Job, attempt: Attempt) -> None:
        context = self._context
        work = partial(stop_unstarted, context.engines.of(attempt), context.request(job, attempt).paths)
        context.call_engine(job, attempt, work, self._on_cancelled_unstarted, self._on_unreachable)

    def _on_cancelled_unstarted(self, job: Job, observation: Observation) -> None:
        if observation.presence is Presence.ABSENT:
            transitions.cancelled(self._context.store, job, self._last(job), at=self._context.now())

    def _on_start_error(self, job: Job, error: RungError) -> None:
        """Count it as a fault of the host if it answers and cannot start the attempt; another host may be able to."""
        if isinstance(error, HostError):
            # Its host has just answered: it is the host of the checkpoint, or the next observation tells.
            self._context.set_reason(job, f"it cannot be started yet: {error}")
            self._context.back_off(job.id, BACK_OFF_SECONDS)
            return
        at = self._context.now()
        fault = Fault(FaultKind.INFRA_FAULT, f"it could not be started: {error}")
        attempt = replace(self._last(job), fault=fault, ended_at=at)
        transitions.recovering(self._context.store, job, attempt, fault, fault_recorded=False, at=at)
        self.forget(job.id)

    # Following

    def _follow(self, job: Job, attempt: Attempt, request: Request) -> None:
        store, at = self._context.store, self._context.now()
        view = self._view(job, attempt, request)
        attempt = self._record_progress(job, attempt, view)
        if job.state is JobState.STOPPING:
            return
        history = view.watch.detector.history
        fault = view.watch.fault or self._stalls.check(job, attempt, request, view.watch)
        if self._context.tasks.busy(job.id):
            return  # its host is asked whether it hangs
        if fault is None and not attempt.is_trial:
            fault = self._judge.while_running(job, history)
        if fault is not None:
            faulty = log_watch.with_fault(with_verdict(store, attempt), fault, view.watch)
            transitions.stopping_for_fault(store, job, faulty, fault, at=at)
        elif job.cancel_requested:
            transitions.stopping_for_person(store, job, at=at)
        elif job.state is JobState.LAUNCHING and attempt.progress_at is not None:
            transitions.running(store, job, attempt, at=at)
        elif attempt.is_trial:
            if self._trials.follow(job, attempt, history):
                self.forget(job.id)  # from now on early warnings count
        elif job.state is JobState.RUNNING:
            self._on_healthy(job, attempt, history)

    def _record_progress(self, job: Job, attempt: Attempt, view: AttemptView, *, at_once: bool = False) -> Attempt:
        """Write the progress seen in the log, at most once a second, and report knobs that did not take."""
        now, steady = self._context.now(), self._context.steady()
        updated = log_watch.with_progress(attempt, view.watch, job.spec.success, now)
        updated = replace(updated, longest_gap=self._stalls.longest_gap(attempt))
        first = updated.progress_at is not None and attempt.progress_at is None
        if updated != attempt and (at_once or first or steady - view.written_at >= PROGRESS_SECONDS):
            with self._context.store.transaction():
                self._context.store.put_attempt(updated)
            view.written_at = steady
        transitions.progressed(self._context.store, attempt, updated, at=now)
        if note := view.watch.new_series_note():
            self._context.note_trouble(updated, note)
        if note := view.watch.new_sampling_note():
            transitions.sampled(self._context.store, updated, note, at=now)
        ignored = not_taken(updated.asked, updated.effective)
        if ignored and not view.not_taken_reported:
            transitions.not_taken(self._context.store, updated, ignored, at=now)
            view.not_taken_reported = True
        return updated

    def _on_ended(self, job: Job, attempt: Attempt, request: Request, observation: Observation) -> None:
        view = self._view(job, attempt, request)
        attempt = self._record_progress(job, attempt, view, at_once=True)
        self.forget(job.id)
        self._ending.record(job, attempt, request.paths, observation, view.watch)
