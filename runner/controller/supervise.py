"""Supervises an attempt from its launch to its end: has it started, reads its log, stops it, records how it ended.

The engine of the attempt is called in the task pool. A host that does not answer is shown as the job's reason; nothing
is stopped or started because of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial

from rung.jobs.job import Attempt, Job
from rung.jobs.model.engine import PlacedBy
from rung.jobs.model.errors import HostError, HostUnreachable, NeverTaken, RungError
from rung.jobs.model.knobs import not_taken
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.model.state import JobState
from rung.recovery.monitors.learning import LossHistory
from rung.runner.checkpoints.whole_folder import LastSeen
from rung.runner.context import TURN_SECONDS, Context
from rung.runner.controller import log_watch
from rung.runner.controller.ending import Ending, with_verdict
from rung.runner.controller.glance import Glance
from rung.runner.controller.judge_run import RunJudge
from rung.runner.controller.log_watch import AttemptView, LogWatch
from rung.runner.controller.observe import Look, observe
from rung.runner.controller.stall_watch import StallWatch
from rung.runner.controller.start import Starter
from rung.runner.seams.engine import Observation, Presence
from rung.runner.series.write import SeriesWriter
from rung.runner.state import transitions
from rung.runner.trials.trial_supervisor import TrialSupervisor

# Between two questions about attempts on hosts, times the number of attempts, so that many of them load it less.
POLL_SECONDS = 0.01
# Between two observations of a running attempt on this machine to which nothing happens (see Glance).
LONG_LOOK_SECONDS = 30.0
# As much of a log as is read at once, in the loop: it takes less than to have a thread do it.
INLINE_BYTES = 6 * 1024
BACK_OFF_SECONDS = 1.0
OnHealthy = Callable[[Job, Attempt, LossHistory], None]


class Supervisor:
    """Supervises attempts. `why_stay` tells why a job stays with a lost host; `on_healthy` is called for good runs."""

    def __init__(
        self, context: Context, last_seen: LastSeen, why_stay: Callable[[Job, str], str], on_healthy: OnHealthy
    ) -> None:
        self._context, self._why_stay, self._on_healthy = context, why_stay, on_healthy
        self._views: dict[str, AttemptView] = {}
        self._judge, self._trials = RunJudge(context), TrialSupervisor(context)
        self._ending = Ending(context, self._judge, self._trials)
        self._stalls = StallWatch(context)
        self._starter = Starter(context, last_seen, self._on_unreachable, self.forget)
        # The running attempts.
        self.glance = Glance()
        # The jobs whose host does not answer now.
        self.unreachable: set[str] = set()

    def forget(self, job_id: str) -> None:
        """Drop what is kept in memory about a job; its log is read again from the start."""
        self._views.pop(job_id, None)
        self._stalls.forget(job_id)
        self.glance.forget(job_id)
        self.unreachable.discard(job_id)

    def job_ended(self, job_id: str) -> None:
        self.forget(job_id)
        self._starter.job_ended(job_id)

    def supervise(self, job: Job) -> None:
        attempt = self._last(job)
        if self._is_delayed(job, attempt):
            return
        try:
            engine = self._context.engines.of(attempt)
        except HostError as error:
            self._on_unreachable(job, error)  # its host is no longer in the list
            return
        view = self._view(job, attempt)
        if self._is_early(job, attempt, view):
            self._read_on(job, attempt, view)
            return
        view.asked_for, view.asked_at = _question(job, attempt), self._context.steady()
        stop = self._grace_over(job, attempt) if job.state is JobState.STOPPING else None
        started = attempt.is_remote and attempt.started_at is not None
        work = partial(observe, engine, view.request.paths, view.watch, stop, started)
        self._context.call_engine(job, attempt, work, self._on_observed, self._on_unreachable)

    def next_turn_in(self, job: Job) -> float:
        """Return in how many seconds a job is due again, though nothing happens to it."""
        view = self._views.get(job.id)
        if view is None or view.asked_for is None:
            return TURN_SECONDS
        pause = self._pause(job, self._last(job))
        return max(0.0, view.asked_at + pause - self._context.steady())

    def _is_early(self, job: Job, attempt: Attempt, view: AttemptView) -> bool:
        """Tell whether the engine has answered the same question a moment ago, and nothing shows that it changed."""
        if view.asked_for != _question(job, attempt):
            return False
        is_glanced_at = self.glance.knows(job.id, attempt.number)
        if self.glance.growth(job.id) is None and (is_glanced_at or not attempt.is_remote):
            return False  # it has ended, or only its engine can tell
        return self._context.steady() - view.asked_at < self._pause(job, attempt)

    def _pause(self, job: Job, attempt: Attempt) -> float:
        """Return the seconds between two questions about an attempt."""
        if attempt.is_remote:
            # What runs is seen by its log. One that starts or stops is asked about more often: few do at a time.
            is_settled = job.state is JobState.RUNNING and self.glance.knows(job.id, attempt.number)
            many = len(self._views) if is_settled else len(self._views) - len(self.glance)
            return max(TURN_SECONDS, POLL_SECONDS * many)
        if job.state is JobState.STOPPING or not self.glance.knows(job.id, attempt.number):
            return TURN_SECONDS / 2
        return self._stalls.pause(job, attempt, LONG_LOOK_SECONDS)

    def _read_on(self, job: Job, attempt: Attempt, view: AttemptView) -> None:
        """Read what an attempt has printed since, as far as it is here; a thread does it where that is much."""
        growth = self.glance.growth(job.id)
        if growth is None or attempt.unreachable_since is not None:
            return
        if growth <= INLINE_BYTES:
            self._follow(job, attempt, view, more=growth > 0 and view.watch.read())
            return
        work = partial(observe, self._context.engines.of(attempt), view.request.paths, view.watch, None, False)
        self._context.call_engine(job, attempt, work, self._on_observed, self._on_unreachable)

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

    def _view(self, job: Job, attempt: Attempt) -> AttemptView:
        view = self._views.get(job.id)
        if view is None or view.number != attempt.number:
            request = self._context.request(job, attempt)
            warns = not (attempt.is_trial or attempt.left_alone)
            series = SeriesWriter(request.paths, self._context.now)
            watch = LogWatch(request.paths.log, job, warns=warns, warns_after=attempt.tried_until, series=series)
            view = self._views[job.id] = AttemptView(attempt.number, watch, request)
        return view

    # Observing

    def _on_observed(self, job: Job, look: Look) -> None:
        attempt, observation = self._last(job), look.observation
        if observation.presence is Presence.UNREACHABLE:
            self._on_unreachable(job, HostUnreachable(observation.detail))
            return
        self.unreachable.discard(job.id)
        if attempt.unreachable_since is not None:
            away = self._context.lasting(("away", job.id, attempt.number)).seconds
            attempt = transitions.answers_again(self._context.store, attempt, away, at=self._context.now())
        self._context.over(("away", job.id, attempt.number))
        if observation.presence is Presence.REFUSED:
            self._starter.on_error(job, NeverTaken(observation.detail))
        elif observation.presence is Presence.WAITING:
            self._on_waiting(job, attempt, observation)
        elif observation.presence is Presence.ABSENT:
            self._starter.start(job, attempt, self._view(job, attempt))
        else:
            self._on_seen(job, attempt, look)

    def _glance_at(self, attempt: Attempt, paths: AttemptPaths) -> None:
        # The log of a host is copied here, and then the record of its end.
        signs = (str(paths.done),) if attempt.is_remote else self._context.engines.local.signs_of_end(paths)
        self.glance.add(attempt.job_id, attempt.number, paths.log, signs)

    def _on_waiting(self, job: Job, attempt: Attempt, observation: Observation) -> None:
        self._stalls.count_anew(attempt)
        self._context.set_reason(job, observation.detail)
        if job.cancel_requested and attempt.started_at is None and attempt.engine.placed_by is PlacedBy.SITE:
            # It waits in the queue of its site, which takes it out of there.
            self._starter.stop_unstarted(job, attempt)
        elif job.cancel_requested and attempt.started_at is not None and job.state is not JobState.STOPPING:
            transitions.stopping_for_person(self._context.store, job, at=self._context.now())

    def _on_seen(self, job: Job, attempt: Attempt, look: Look) -> None:
        """Act on an attempt that runs or has ended."""
        view, observation = self._view(job, attempt), look.observation
        if attempt.started_at is None:
            attempt = log_watch.with_start(attempt, observation, view.request.asked, self._context.now())
            transitions.started(self._context.store, attempt, self._context.how_started(attempt, view.request))
        if observation.presence is Presence.RUNNING:
            if not self.glance.knows(job.id, attempt.number):
                self._glance_at(attempt, view.request.paths)
            self._follow(job, attempt, view, more=look.more)
        elif look.more:
            self._record_progress(job, attempt, view)
            view.asked_for = None  # it has ended; the rest of its log is read before anything is judged
        else:
            self._on_ended(job, attempt, view, observation)

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
            job, f"{attempt.some_host} is unreachable since {clock} ({detail}); the job is left as it is{more}"
        )

    # Following

    def _follow(self, job: Job, attempt: Attempt, view: AttemptView, *, more: bool) -> None:
        """Act on what the log shows; `more`: there is more of it to read at once."""
        store, at = self._context.store, self._context.now()
        self.glance.has_read(job.id, view.watch.offset)
        attempt = self._record_new(job, attempt, view)
        view.asked_for = None if more else view.asked_for
        if job.state is JobState.STOPPING:
            return
        history = view.watch.detector.history
        fault = view.watch.fault or self._stalls.check(job, attempt, view.request, view.watch)
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

    def _record_new(self, job: Job, attempt: Attempt, view: AttemptView) -> Attempt:
        """Keep the progress seen in the log, if there can be any since the last time."""
        is_same = view.recorded == view.watch.offset and self._stalls.longest_gap(attempt) == attempt.longest_gap
        return attempt if is_same else self._record_progress(job, attempt, view)

    def _record_progress(self, job: Job, attempt: Attempt, view: AttemptView) -> Attempt:
        """Keep the progress seen in the log, and report knobs that did not take."""
        now = self._context.now()
        updated = log_watch.with_progress(attempt, view.watch, job.spec.success, now)
        gap = self._stalls.longest_gap(attempt)
        if gap != updated.longest_gap:
            updated = replace(updated, longest_gap=gap)
        if updated.progress_at is not None and attempt.progress_at is None:
            with self._context.store.transaction():
                self._context.store.put_attempt(updated)  # at once: the job is RUNNING because of it
        elif not log_watch.is_same(updated, attempt):
            self._context.store.keep_progress(updated)
        transitions.progressed(self._context.store, attempt, updated, at=now)
        if note := view.watch.new_series_note():
            self._context.note_trouble(updated, note)
        if note := view.watch.new_sampling_note():
            transitions.sampled(self._context.store, updated, note, at=now)
        ignored = {} if view.not_taken_reported else not_taken(updated.asked, updated.effective)
        if ignored:
            transitions.not_taken(self._context.store, updated, ignored, at=now)
            view.not_taken_reported = True
        view.recorded = view.watch.offset
        return updated

    def _on_ended(self, job: Job, attempt: Attempt, view: AttemptView, observation: Observation) -> None:
        attempt = self._record_progress(job, attempt, view)
        self.forget(job.id)
        self._ending.record(job, attempt, view.request.paths, observation, view.watch)


def _question(job: Job, attempt: Attempt) -> tuple[object, ...]:
    """Return what an engine is asked: another question needs no pause after the last one."""
    return job.state, job.cancel_requested, attempt.number, attempt.started_at is None
