"""Runs the controller's loop: a job gets a turn when something has happened to it, whatever happens to the others.

All of its memory can be rebuilt from the store and the logs, so it may be killed at any moment: a decision is written
before it is carried out, and the engine finds again what was started.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Set
from typing import Protocol

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import RungError, StoreError
from rung.jobs.model.event import EventKind
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.model.terminal_text import clean
from rung.recovery.monitors.learning import LossHistory
from rung.runner.checkpoints.mirror import Mirror
from rung.runner.checkpoints.search import CheckpointSearch
from rung.runner.context import TURN_SECONDS, Clock, Context
from rung.runner.controller import chores
from rung.runner.controller.chores import Chores
from rung.runner.controller.recover import Recovery
from rung.runner.controller.side_trials import SideTrials
from rung.runner.controller.step_back import StepBack
from rung.runner.controller.supervise import Supervisor
from rung.runner.engine_pool import Engines
from rung.runner.placement.host_pool import HostPool
from rung.runner.placement.placement import Placer
from rung.runner.state.store import Store
from rung.runner.trials.look_again import LookAgain

# How long a job is left alone after an unexpected error: at first, doubled each time, and at most.
ERROR_BACK_OFF_SECONDS = (1.0, 60.0)
# A longer time between two turns means that the controller was paused or stopped.
GAP_SECONDS = 30.0
# A little less than the time between two turns when nothing wakes the loop.
GLANCE_SECONDS = 0.9 * TURN_SECONDS
# With more than 450 attempts, glances come later: one at a single attempt takes 10 us, and together they get no more
# than a fortieth of a core.
GLANCE_SECONDS_EACH = 0.0004
# Where a run is being stopped, its end is looked for so often: a relaunch waits for it.
STOPPING_SECONDS = 0.05
# A turn of the loop gives turns to jobs for about so long. Those that are left come first in the next one, after a look
# at what else has happened.
MOST_TURN_SECONDS = 0.3
# Progress is written so often; what is decided is written at once.
PROGRESS_SECONDS = 1.0


class KeepsJobs(Protocol):
    """A part that keeps something about each active job."""

    def job_ended(self, job_id: str) -> None: ...


class Controller:
    """Gives jobs their turns. The clocks and the sleep are passed in."""

    def __init__(
        self,
        store: Store,
        engines: Engines,
        paths: HomePaths,
        environ: Mapping[str, str],
        clock: Clock,
    ) -> None:
        store.remember()
        self._context = Context(store, engines, paths, environ, clock)
        self._store, self._agenda = store, self._context.agenda
        self._host_pool = HostPool(self._context)
        self._checkpoint_search = CheckpointSearch(self._context, self._host_pool.away)
        self._placer = Placer(self._context, self._host_pool, self._checkpoint_search)
        self._recovery = Recovery(self._context, self._checkpoint_search, self._placer)
        self._side_trials = SideTrials(self._context, self._why_stay)
        self._step_back = StepBack(self._context, self._checkpoint_search)
        self._look_again = LookAgain(self._context, self._checkpoint_search, self._recovery.gpu)
        self._supervisor = Supervisor(
            self._context, self._checkpoint_search.last_seen, self._why_stay, self._on_healthy
        )
        self._mirror = Mirror(self._context)
        self._chores = Chores(self._context, self._host_pool, self._placer, self._on_error)
        self._parts_with_jobs: tuple[KeepsJobs, ...] = (
            *(self._context, self._supervisor, self._side_trials, self._look_again),
            *(self._mirror, self._checkpoint_search, self._placer),
        )
        self._unexpected_errors: dict[str, tuple[float, float]] = {}
        # The active jobs as they were at the last turn, as the store gave them and by their ids.
        self._listed: list[Job] | None = None
        self._jobs: dict[str, Job] = {}
        # Those whose run is being stopped.
        self._stopping: list[str] = []
        # Those that were due then and got no turn, and their ranks.
        self._left: dict[str, int] = {}
        self._last_turn = self._progress_at = self._glanced_at = self._context.steady()
        self._agenda.wake(chores.KEY)

    def turn(self) -> int:
        """Give a turn to what is due; return how many jobs and other things are under way."""
        self._notice_gap()
        try:
            self._take_turns()
        except StoreError:
            # What was due still is.
            self._listed, self._jobs = None, {}
            self._agenda.wake(chores.KEY)
            raise
        return len(self._jobs) + self._chores.open

    def wait(self) -> None:
        """Sleep until something is due, or until it is time to look at logs and at the store again."""
        self._agenda.wait(STOPPING_SECONDS if self._stopping else TURN_SECONDS)

    def tidy(self) -> bool:
        """Go on with what is left to remove after the last job has ended; False: there is nothing to wait for."""
        return self._chores.tidy()

    def hosts_answering(self) -> dict[str, bool]:
        return self._host_pool.answers()

    def _notice_gap(self) -> None:
        """Notice that the controller was paused or stopped: a host that was away before need not be away still."""
        if self._context.steady() - self._last_turn > GAP_SECONDS:
            self._context.count_anew()
        self._last_turn = self._context.steady()

    def close(self) -> None:
        self._context.tasks.close()
        self._context.engines.close()

    # Turns

    def _take_turns(self) -> None:
        self._store.look_for_changes()
        due = self._find_due()
        self._give_turns(due)
        if any(each not in self._jobs or self._jobs[each].state in chores.MAY_WAIT for each in due):
            self._chores.turn(host_is_away=bool(self._supervisor.unreachable))
        for job_id in self._store.take_written():
            self._agenda.wake(job_id)
        self._write_progress()

    def _give_turns(self, due: Set[str]) -> None:
        """Give turns to the jobs that are due, for a while: first to those that were left the last time."""
        until = self._context.steady() + MOST_TURN_SECONDS
        waiting = [each for each in self._jobs if each in due]
        waiting.sort(key=lambda each: self._left.get(each, len(self._left)))
        self._left = {}
        for place, job_id in enumerate(waiting):
            if self._context.steady() >= until:
                self._left = {each: rank for rank, each in enumerate(waiting[place:])}
                break
            job = self._store.job(job_id)
            self._guarded(job, self._turn)
            self._guarded(job, self._side_trials.turn)
            self._plan_next(job_id)
        for job_id in self._left:
            self._agenda.wake(job_id)

    def _find_due(self) -> set[str]:
        """Return what is due: woken by a thread or a deadline, new, written by anybody, or seen from outside."""
        now, due, glance = self._context.steady(), self._look_for_other_jobs(), self._supervisor.glance
        if now - self._glanced_at >= max(GLANCE_SECONDS, GLANCE_SECONDS_EACH * len(glance)):
            self._glanced_at = now
            due.update(glance.look())
        elif self._stopping:
            due.update(glance.look(self._stopping))
        return due | self._agenda.take()

    def _look_for_other_jobs(self) -> set[str]:
        """Take over what has changed among the active jobs; return the new and the written ones."""
        listed, before = self._store.jobs(active=True), self._jobs
        # In most turns nothing was written, and the jobs are the same objects: a thousand are compared in 10 us.
        if listed == self._listed:
            return set()
        self._listed, self._jobs = listed, {job.id: job for job in listed}
        self._stopping = [job.id for job in listed if job.state is JobState.STOPPING]
        for job_id in before.keys() - self._jobs.keys():
            self._job_ended(job_id)
        return {job.id for job in listed if before.get(job.id) is not job}

    def _job_ended(self, job_id: str) -> None:
        """Have every part drop what it keeps about a job that has ended, so that nothing grows with their number."""
        self._unexpected_errors.pop(job_id, None)
        for part in self._parts_with_jobs:
            part.job_ended(job_id)

    def _plan_next(self, job_id: str) -> None:
        """Plan the turn that a job gets though nothing happens to it."""
        job, seconds = self._store.job(job_id), self._context.back_off_left(job_id)
        if job.ended or job.state is JobState.QUEUED or self._context.tasks.busy(job_id):
            return  # it gets none, or when it is placed, or when its task is done
        if not seconds:
            seconds = TURN_SECONDS if job.state is JobState.RECOVERING else self._supervisor.next_turn_in(job)
        self._context.wake_in(job_id, seconds)

    def _write_progress(self) -> None:
        if self._context.steady() - self._progress_at >= PROGRESS_SECONDS:
            self._progress_at = self._context.steady()
            self._store.write_progress()

    def _guarded(self, job: Job, act: Callable[[Job], None]) -> None:
        """Act on one job; an error becomes the reason of this job, and the other jobs go on."""
        try:
            act(job)
        except StoreError:
            raise
        except Exception as error:
            self._on_error(job, error)

    def _on_error(self, job: Job, error: Exception) -> None:
        if isinstance(error, RungError):
            self._context.set_reason(job, str(error))
        else:
            self._on_unexpected_error(job, error)

    def _on_unexpected_error(self, job: Job, error: Exception) -> None:
        """Record an unexpected error, and leave the job alone for a while."""
        first, most = ERROR_BACK_OFF_SECONDS
        before, at = self._unexpected_errors.get(job.id, (0.0, 0.0))
        now = self._context.steady()
        repeated = job.id in self._unexpected_errors and now - at < 2 * before + first
        delay = min(before * 2, most) if repeated else first
        self._unexpected_errors[job.id] = (delay, now)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
        message = clean(f"unexpected error with this job: {type(error).__name__} in {where}: {error}")[:500]
        self._supervisor.forget(job.id)
        self._checkpoint_search.forget(job.id)
        self._context.back_off(job.id, delay)
        with self._store.transaction():
            self._store.set_reason(job.id, f"{message}; the job is left as it is and tried again")
            at = self._context.now()
            self._store.add_event(job.id, None, EventKind.UNEXPECTED_ERROR, {"because": message}, at=at)

    def _turn(self, job: Job) -> None:
        self._mirror.turn(job)
        self._checkpoint_search.keep(job)
        task = self._context.tasks.take(job.id)
        if task is not None:
            self._context.progress.pop(job.id, None)
            error = task.error
            if error is not None:
                task.on_error(job, error)
            else:
                task.on_result(job, task.future.result())
            self._agenda.wake(job.id)  # the next step needs no waiting
        elif self._context.tasks.busy(job.id):
            progress = self._context.progress.pop(job.id, None)
            if progress is not None:
                self._context.set_reason(job, clean(progress))
        elif not self._context.is_backing_off(job.id):
            self._step(job)

    def _step(self, job: Job) -> None:
        if job.refused and job.state in (JobState.QUEUED, JobState.RECOVERING) and not job.cancel_requested:
            return  # its reason says why; a person can cancel it
        if job.state is JobState.QUEUED:
            return  # the chores place it
        if job.state is JobState.RECOVERING:
            self._recovery.advance(job)
        else:
            self._supervisor.supervise(job)

    # RUNNING

    def _on_healthy(self, job: Job, attempt: Attempt, history: LossHistory) -> None:
        if not self._look_again.consider(job, attempt, history):
            self._step_back.consider(job)

    def _why_stay(self, job: Job, host: str) -> str:
        """Return why a job stays with a host that has been away for too long; empty: it moves."""
        if not self._placer.elsewhere(job, host):
            return "no other host could take the job"
        return "" if self._checkpoint_search.can_leave(job) else "no copy of its checkpoints is here"
