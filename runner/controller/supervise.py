"""Owns attending to an attempt from its launch to its end: look, note, start, stop, settle how it ended.

Every look is asked of the attempt's engine: at once on this machine, beside the loop on a host. A host that does not
answer is a reason that is shown, and nothing is stopped or started for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import EngineError, HostRefused, HostUnreachable
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import not_taken
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.model.state import JobState
from rung.recovery.monitors.learning import Verdict
from rung.runner.checkpoints.set_aside import Clearing
from rung.runner.checkpoints.stage import begin
from rung.runner.context import Context
from rung.runner.controller import log_watch
from rung.runner.launch.request import find_secrets, start_attempt
from rung.runner.seams.engine import Engine, Observation, Presence, Request
from rung.runner.state import transitions

# How often progress is written to the store while nothing else happens.
PROGRESS_SECONDS = 1.0
# Between two looks at an attempt on a host, for every attempt that is attended to: many of them are asked less often.
PACE_SECONDS = 0.01
REST_SECONDS = 1.0


@dataclass
class AttemptView:
    """What the controller holds in memory of one attempt; all of it can be read again."""

    number: int
    watch: log_watch.LogWatch
    written_at: float = 0.0
    told_not_taken: bool = False


def look(
    engine: Engine, paths: AttemptPaths, eyes: log_watch.LogWatch, stop: bool | None, started: bool
) -> Observation:
    """Ask for an attempt and take in what its log has gained; `stop`: end it, True by force."""
    seen = engine.observe(paths)
    if started and seen.presence is Presence.ABSENT:
        seen = Observation(Presence.LOST, detail="the container is gone from the host")
    if seen.presence is Presence.RUNNING:
        eyes.read()
        if stop is not None:
            engine.stop(paths, force=stop)
    elif seen.presence in (Presence.ENDED, Presence.LOST):
        eyes.read_to_end()
    return seen


class Supervisor:
    """Looks after attempts. `elsewhere` names other hosts for a job; `healthy` hears of each look that went well."""

    def __init__(
        self, context: Context, elsewhere: Callable[[Job, str], list[str]], healthy: Callable[[Job], None]
    ) -> None:
        self._context, self._elsewhere, self._healthy = context, elsewhere, healthy
        self._eyes: dict[str, AttemptView] = {}
        self._clearing = Clearing(context)
        # Jobs whose host does not answer now.
        self.away: set[str] = set()

    def forget(self, job_id: str) -> None:
        """Drop what is held in memory of a job; its log is read again from its beginning."""
        self._eyes.pop(job_id, None)
        self.away.discard(job_id)

    def attend(self, job: Job) -> None:
        context = self._context
        attempt = self._last(job)
        held_back = attempt.not_before is not None and context.now() < attempt.not_before
        if held_back and attempt.started_at is None and not job.cancel_requested:
            return
        request = context.request(job, attempt)
        try:
            engine = context.engine(attempt)
        except EngineError as error:
            self._no_answer(job, error)  # its host is not in the list any more
            return
        eyes = self._look(job, attempt, request)
        grace_over = context.now() - job.updated_at > job.spec.recovery.grace
        stop = grace_over if job.state is JobState.STOPPING else None
        started = attempt.image is not None and attempt.started_at is not None
        work = partial(look, engine, request.paths, eyes.watch, stop, started)
        context.ask(job, attempt, work, self._seen, self._no_answer)
        if attempt.image is not None:
            context.rest(job.id, PACE_SECONDS * len(self._eyes))

    def _last(self, job: Job) -> Attempt:
        return self._context.store.attempts(job.id)[-1]

    def _look(self, job: Job, attempt: Attempt, request: Request) -> AttemptView:
        eyes = self._eyes.get(job.id)
        if eyes is None or eyes.number != attempt.number:
            made = log_watch.LogWatch(self._context.engine(attempt), request.paths, job)
            eyes = self._eyes[job.id] = AttemptView(attempt.number, made)
        return eyes

    # What the engine said

    def _seen(self, job: Job, seen: Observation) -> None:
        attempt = self._last(job)
        if seen.presence is Presence.UNREACHABLE:
            self._no_answer(job, HostUnreachable(seen.detail))
            return
        self.away.discard(job.id)
        if attempt.unreachable_since is not None:
            attempt = transitions.answers_again(self._context.store, attempt, at=self._context.now())
        if seen.presence is Presence.WAITING:
            self._context.say(job, seen.detail)
            return
        request = self._context.request(job, attempt)
        if seen.presence is Presence.ABSENT:
            self._start(job, attempt, request)
            return
        if attempt.started_at is None:
            attempt = replace(attempt, started_at=seen.started_at or self._context.now())
            transitions.started(self._context.store, attempt, request.argv)
        if seen.presence is Presence.RUNNING:
            self._follow(job, attempt, request)
        else:
            self._end(job, attempt, request, seen)

    def _no_answer(self, job: Job, error: EngineError) -> None:
        """Show that the host does not answer, for as long as it lasts; past the bound the job moves, if it can."""
        attempt, now = self._last(job), self._context.now()
        if attempt.image is None:
            self._context.say(job, str(error))
            return
        if attempt.unreachable_since is None:
            attempt = transitions.out_of_reach(self._context.store, attempt, str(error), at=now)
        since = attempt.unreachable_since or now
        self.away.add(job.id)
        self._context.rest(job.id, REST_SECONDS)
        bound = job.spec.recovery.host_lost_after
        late = bound is not None and now - since >= bound
        if late and (job.cancel_requested or self._elsewhere(job, attempt.host)):
            transitions.host_lost(self._context.store, job, attempt, at=now)
            self.forget(job.id)
            return
        clock = datetime.fromtimestamp(since).strftime("%H:%M:%S")
        stays = "; no other host could take the job, so it waits for this one" if late else ""
        said = str(error).removeprefix(f"{attempt.host}: ")
        self._context.say(job, f"{attempt.host} is unreachable since {clock} ({said}); the job is left as it is{stays}")

    # Starting

    def _start(self, job: Job, attempt: Attempt, request: Request) -> None:
        context, engine = self._context, self._context.engine(attempt)
        if job.cancel_requested:
            # A killed controller may have left a wrapper on its way: it finds the mark and does nothing.
            work = partial(_stop_unstarted, engine, request.paths)
            context.ask(job, attempt, work, self._cancelled_unstarted, self._no_answer)
            return
        if self._clearing.pending(attempt):
            self._clearing.send(job, attempt, request, self._no_answer)
            if self._clearing.pending(attempt):
                return  # it is asked on its host; the next turn goes on
        try:
            secrets = find_secrets(request.secrets, context.paths, context.environ)
        except EngineError as error:
            transitions.not_started(context.store, job, attempt, str(error), at=context.now())
            return
        if attempt.image is None:
            context.ask(
                job,
                attempt,
                partial(start_attempt, engine, request, secrets, context.sleep),
                lambda job, _: None,
                lambda job, error: transitions.not_started(context.store, job, attempt, str(error), at=context.now()),
            )
            return
        context.say(job, f"{attempt.host} is starting it")
        beginning = begin(context, job, attempt, request, secrets)
        context.tasks.send(job.id, attempt.host, beginning, (lambda job, _: None, self._not_begun), slow=True)

    def _cancelled_unstarted(self, job: Job, seen: Observation) -> None:
        if seen.presence is Presence.ABSENT:
            transitions.cancelled(self._context.store, job, self._last(job), at=self._context.now())

    def _not_begun(self, job: Job, error: EngineError) -> None:
        """A host that is there and cannot start the attempt has a fault of its own; another one may do better."""
        if isinstance(error, (HostUnreachable, HostRefused)):
            self._no_answer(job, error)
            return
        at = self._context.now()
        fault = Fault(FaultKind.INFRA_FAULT, f"it could not be started: {error}")
        attempt = replace(self._last(job), fault=fault, ended_at=at)
        transitions.recovering(self._context.store, job, attempt, fault, told=False, at=at)
        self.forget(job.id)

    # Following

    def _follow(self, job: Job, attempt: Attempt, request: Request) -> None:
        store, at = self._context.store, self._context.now()
        eyes = self._look(job, attempt, request)
        attempt = self._note(job, attempt, eyes)
        if job.state is JobState.STOPPING:
            return
        fault = eyes.watch.detector.first_fault(ended=False) or self._unlearned(job, eyes, ended=False)
        if fault is not None:
            ill = log_watch.with_fault(replace(attempt, recovered=self._recovered(job)), fault, eyes.watch)
            transitions.stopping_for_fault(store, job, ill, fault, at=at)
        elif job.cancel_requested:
            transitions.stopping_for_person(store, job, at=at)
        elif job.state is JobState.LAUNCHING and attempt.progress_at is not None:
            transitions.running(store, job, attempt, at=at)
        elif job.state is JobState.RUNNING:
            self._healthy(job)

    def _note(self, job: Job, attempt: Attempt, eyes: AttemptView, *, at_once: bool = False) -> Attempt:
        """Write what the log has shown, at most once a second, and whether the knobs took."""
        now = self._context.now()
        seen = log_watch.with_progress(attempt, eyes.watch, job.spec.success, now)
        first = seen.progress_at is not None and attempt.progress_at is None
        if seen != attempt and (at_once or first or now - eyes.written_at >= PROGRESS_SECONDS):
            with self._context.store.transaction():
                self._context.store.put_attempt(seen)
            eyes.written_at = now
        ignored = not_taken(seen.asked, seen.effective)
        if ignored and not eyes.told_not_taken:
            transitions.not_taken(self._context.store, seen, ignored, at=now)
            eyes.told_not_taken = True
        return seen

    def _unlearned(self, job: Job, eyes: AttemptView, *, ended: bool) -> Fault | None:
        """Return the fault of a cured run that does not learn; note the recovery of one that does."""
        attempts = self._context.store.attempts(job.id)
        judgement = log_watch.judge_cure(job, attempts, eyes.watch, ended=ended)
        if judgement is None:
            return None
        if judgement.verdict is Verdict.NOT_LEARNING:
            return log_watch.not_learning(job, attempts, judgement)
        transitions.recovered(self._context.store, attempts[-1], judgement.because, at=self._context.now())
        return None

    def _recovered(self, job: Job) -> bool | None:
        return self._last(job).recovered

    # Ending

    def _end(self, job: Job, attempt: Attempt, request: Request, seen: Observation) -> None:
        """Settle an attempt whose process is gone: succeeded, cancelled, or a fault to recover from."""
        store, at = self._context.store, self._context.now()
        eyes = self._look(job, attempt, request)
        attempt = self._note(job, attempt, eyes, at_once=True)
        self.forget(job.id)
        attempt = replace(attempt, exit_code=seen.exit_code, ended_at=seen.ended_at or at)
        stopped = job.state is JobState.STOPPING
        fault = attempt.fault or (None if stopped else log_watch.fault_at_end(seen, eyes.watch))
        if job.cancel_requested and (stopped or fault is not None):
            transitions.cancelled(store, job, attempt, at=at)
        elif stopped and fault is None:
            transitions.stopped_in_health(store, job, attempt, at=at)
        elif fault is None:
            self._finished(job, attempt, eyes)
        else:
            self._faulted(job, attempt, fault, eyes)

    def _finished(self, job: Job, attempt: Attempt, eyes: AttemptView) -> None:
        store, at = self._context.store, self._context.now()
        missing = log_watch.shortfall(job.spec.success, attempt)
        unlearned = None if job.spec.success else self._unlearned(job, eyes, ended=True)
        if missing is not None:
            transitions.fell_short(store, job, attempt, missing, at=at)
        elif unlearned is not None:
            self._faulted(job, attempt, unlearned, eyes)
        else:
            transitions.succeeded(store, job, replace(attempt, recovered=self._recovered(job)), at=at)

    def _faulted(self, job: Job, attempt: Attempt, fault: Fault, eyes: AttemptView) -> None:
        told = attempt.fault is not None
        ill = attempt if told else log_watch.with_fault(attempt, fault, eyes.watch)
        transitions.recovering(self._context.store, job, ill, fault, told=told, at=self._context.now())


def _stop_unstarted(engine: Engine, paths: AttemptPaths) -> Observation:
    engine.stop(paths, force=False)
    return engine.observe(paths)
