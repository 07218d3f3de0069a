"""Owns the loop: observe, detect, decide, relaunch, for any number of jobs at once.

All of its memory can be rebuilt from the store and the logs, so it may be killed at any instant: what was decided is
written before it is done, and what was done is found again by the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.attempt import Attempt, Job
from jobs.errors import EngineError
from jobs.fault import Fault
from jobs.knobs import not_taken
from jobs.paths import HomePaths
from jobs.state import JobState
from recovery.checkpoint import UNVERIFIED, Checkpoint
from recovery.decide import decide, resume_limit
from recovery.learning import Verdict
from runner import arrows, launch, relaunch, watch
from runner.engine import Engine, Observation, Presence, Request
from runner.store import Store
from runner.verify import find_checkpoints, verify_enough

# A person follows at this pace; a fault costs at most this much more.
TURN_SECONDS = 0.2
# How often progress is written to the store while nothing else happens.
PROGRESS_SECONDS = 1.0
VERIFIERS = 2


@dataclass
class Eyes:
    """What the controller holds in memory of one attempt; all of it can be read again."""

    number: int
    watch: watch.Watch
    written_at: float = 0.0
    told_not_taken: bool = False


@dataclass
class Controller:
    """Gives every job its turn. The clock and the sleep are passed in."""

    store: Store
    engine: Engine
    paths: HomePaths
    environ: Mapping[str, str]
    now: Callable[[], float]
    sleep: Callable[[float], None]
    _eyes: dict[str, Eyes] = field(default_factory=dict)
    _verifying: dict[str, Future[dict[str, dict[str, Any]]]] = field(default_factory=dict)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(VERIFIERS))

    def turn(self) -> int:
        """Give every active job one turn; return how many there are."""
        jobs = self.store.jobs(active=True)
        for job in jobs:
            try:
                self._turn(job)
            except EngineError as error:
                self._say(job, str(error))
        return len(jobs)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _turn(self, job: Job) -> None:
        if job.state is JobState.QUEUED:
            self._launch(job)
        elif job.state is JobState.RECOVERING:
            self._recover(job)
        else:
            self._attend(job)

    def _say(self, job: Job, reason: str) -> None:
        if reason != job.reason:
            with self.store.transaction():
                self.store.say(job.id, reason)

    def _request(self, job: Job, attempt: Attempt) -> Request:
        return launch.build_request(job, attempt, self.paths, self.store.origin(job.id), self.environ)

    # QUEUED

    def _launch(self, job: Job) -> None:
        """Write the first attempt, or the one a person asked for, which goes on from the last healthy checkpoint."""
        attempts = self.store.attempts(job.id)
        checkpoints = self._checkpoints(job, attempts) if attempts else []
        if checkpoints is not None:
            attempt = relaunch.asked_by_person(job, attempts, checkpoints, self.engine.host)
            arrows.launching(self.store, job, attempt, at=self.now())

    # LAUNCHING, RUNNING, STOPPING

    def _attend(self, job: Job) -> None:
        attempt = self.store.attempts(job.id)[-1]
        request = self._request(job, attempt)
        seen = self.engine.observe(request.paths)
        if seen.presence is Presence.ABSENT:
            self._start(job, attempt, request)
            return
        if seen.presence in (Presence.UNREACHABLE, Presence.WAITING):
            self._say(job, seen.detail)
            return
        if attempt.started_at is None:
            attempt = replace(attempt, started_at=seen.started_at or self.now())
            arrows.started(self.store, attempt, request.argv)
        if seen.presence is Presence.RUNNING:
            self._follow(job, attempt, request)
        else:
            self._end(job, attempt, request, seen)

    def _start(self, job: Job, attempt: Attempt, request: Request) -> None:
        if job.cancel_requested:
            # A killed controller may have left a wrapper on its way: it finds the mark and does nothing.
            self.engine.stop(request.paths, force=False)
            if self.engine.observe(request.paths).presence is Presence.ABSENT:
                arrows.cancelled(self.store, job, attempt, at=self.now())
            return
        if attempt.not_before is not None and self.now() < attempt.not_before:
            return
        try:
            secrets = launch.find_secrets(request.secrets, self.paths, self.environ)
            launch.start(self.engine, request, secrets, self.sleep)
        except EngineError as error:
            arrows.not_started(self.store, job, attempt, str(error), at=self.now())

    def _follow(self, job: Job, attempt: Attempt, request: Request) -> None:
        eyes = self._look(job, attempt, request)
        eyes.watch.read()
        attempt = self._note(job, attempt, eyes)
        if job.state is JobState.STOPPING:
            self.engine.stop(request.paths, force=self.now() - job.updated_at > job.spec.recovery.grace)
            return
        fault = eyes.watch.detector.finding(ended=False) or self._unlearned(job, eyes, ended=False)
        if fault is not None:
            ill = watch.with_fault(replace(attempt, recovered=self._recovered(job)), fault, eyes.watch)
            arrows.stopping_for_fault(self.store, job, ill, fault, at=self.now())
        elif job.cancel_requested:
            arrows.stopping_for_person(self.store, job, at=self.now())
        elif job.state is JobState.LAUNCHING and attempt.progress_at is not None:
            arrows.running(self.store, job, attempt, at=self.now())

    def _look(self, job: Job, attempt: Attempt, request: Request) -> Eyes:
        eyes = self._eyes.get(job.id)
        if eyes is None or eyes.number != attempt.number:
            eyes = self._eyes[job.id] = Eyes(attempt.number, watch.Watch(self.engine, request.paths, job))
        return eyes

    def _note(self, job: Job, attempt: Attempt, eyes: Eyes, *, at_once: bool = False) -> Attempt:
        """Write what the log has shown, at most once a second, and whether the knobs took."""
        seen = watch.with_progress(attempt, eyes.watch, job.spec.success, self.now())
        first = seen.progress_at is not None and attempt.progress_at is None
        if seen != attempt and (at_once or first or self.now() - eyes.written_at >= PROGRESS_SECONDS):
            with self.store.transaction():
                self.store.put_attempt(seen)
            eyes.written_at = self.now()
        ignored = not_taken(seen.asked, seen.effective)
        if ignored and not eyes.told_not_taken:
            arrows.not_taken(self.store, seen, ignored, at=self.now())
            eyes.told_not_taken = True
        return seen

    def _unlearned(self, job: Job, eyes: Eyes, *, ended: bool) -> Fault | None:
        """Return the fault of a cured run that does not learn; note the recovery of one that does."""
        attempts = self.store.attempts(job.id)
        judgement = watch.judge_cure(job, attempts, eyes.watch, ended=ended)
        if judgement is None:
            return None
        if judgement.verdict is Verdict.NOT_LEARNING:
            return watch.not_learning(job, attempts, judgement)
        arrows.recovered(self.store, attempts[-1], judgement.because, at=self.now())
        return None

    def _recovered(self, job: Job) -> bool | None:
        return self.store.attempts(job.id)[-1].recovered

    def _end(self, job: Job, attempt: Attempt, request: Request, seen: Observation) -> None:
        """Settle an attempt whose process is gone: succeeded, cancelled, or a fault to recover from."""
        eyes = self._look(job, attempt, request)
        eyes.watch.read_to_end()
        attempt = self._note(job, attempt, eyes, at_once=True)
        del self._eyes[job.id]
        attempt = replace(attempt, exit_code=seen.exit_code, ended_at=seen.ended_at or self.now())
        stopped = job.state is JobState.STOPPING
        fault = attempt.fault or (None if stopped else watch.fault_at_end(seen, eyes.watch))
        if job.cancel_requested and (stopped or fault is not None):
            arrows.cancelled(self.store, job, attempt, at=self.now())
        elif fault is None:
            self._finished(job, attempt, eyes)
        else:
            self._faulted(job, attempt, fault, eyes)

    def _finished(self, job: Job, attempt: Attempt, eyes: Eyes) -> None:
        missing = watch.shortfall(job.spec.success, attempt)
        unlearned = None if job.spec.success else self._unlearned(job, eyes, ended=True)
        if missing is not None:
            arrows.fell_short(self.store, job, attempt, missing, at=self.now())
        elif unlearned is not None:
            self._faulted(job, attempt, unlearned, eyes)
        else:
            arrows.succeeded(self.store, job, replace(attempt, recovered=self._recovered(job)), at=self.now())

    def _faulted(self, job: Job, attempt: Attempt, fault: Fault, eyes: Eyes) -> None:
        told = attempt.fault is not None
        ill = attempt if told else watch.with_fault(attempt, fault, eyes.watch)
        arrows.recovering(self.store, job, ill, fault, told=told, at=self.now())

    # RECOVERING

    def _recover(self, job: Job) -> None:
        if job.cancel_requested:
            arrows.cancelled_between(self.store, job, at=self.now())
            return
        attempts = self.store.attempts(job.id)[job.settled :]
        checkpoints = self._checkpoints(job, attempts)
        if checkpoints is not None:
            decision = decide(job, attempts, checkpoints, self.engine.gpu())
            relaunch.carry_out(self.store, job, decision, attempts[-1], at=self.now())

    def _checkpoints(self, job: Job, attempts: list[Attempt]) -> list[Checkpoint] | None:
        """Have checkpoints looked into without holding up the other jobs; None until that is done."""
        request = self._request(job, attempts[-1])
        pattern = job.spec.checkpoint.pattern
        future = self._verifying.get(job.id)
        if future is None:
            limit = resume_limit(attempts, job.knobs)
            arguments = (self.engine, request, pattern, attempts, limit, self.store.verdicts(job.id))
            future = self._verifying[job.id] = self._pool.submit(verify_enough, *arguments)
        if not future.done():
            return None
        del self._verifying[job.id]
        seen = future.result()
        with self.store.transaction():
            for fingerprint, said in seen.items():
                if said["verdict"] != UNVERIFIED:
                    self.store.put_verdict(job.id, fingerprint, said)
                data = {"file": fingerprint.rsplit(":", 2)[0], **said}
                self.store.add_event(job.id, attempts[-1].number, "checkpoint", data, at=self.now())
        return find_checkpoints(self.engine, request, pattern, {**self.store.verdicts(job.id), **seen})
