"""Runs the controller's loop: every job gets its turn, whatever happens to the others.

All of its memory can be rebuilt from the store and the logs, so it may be killed at any moment: a decision is written
before it is carried out, and the engine finds again what was started.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.errors import RungError, StoreError
from rung.jobs.model.event import EventKind
from rung.jobs.model.fault import Fault
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.model.terminal_text import clean
from rung.recovery.decide.decide import Decision, Relaunch, Wait
from rung.recovery.decide.step_back import decide_step_back
from rung.recovery.evidence.read_ledger import read_ledger
from rung.recovery.interruption.interruption import decide_interruption
from rung.recovery.ledger.ledger import EMPTY, Ledger
from rung.recovery.monitors.learning import LossHistory
from rung.recovery.trials.decide_trials import decide_with_trials
from rung.recovery.trials.look_again import decide_look_again, latest_start
from rung.runner.checkpoints.mirror import Mirror
from rung.runner.checkpoints.search import CheckpointSearch
from rung.runner.context import Clock, Context
from rung.runner.controller.orphans import OrphanSweep
from rung.runner.controller.probe_sweep import ProbeSweep
from rung.runner.controller.side_trials import SideTrials
from rung.runner.controller.step_back import StepBack
from rung.runner.controller.supervise import Supervisor
from rung.runner.engine_pool import Engines
from rung.runner.placement.group_limit import hold_back
from rung.runner.placement.host_pool import HostPool
from rung.runner.placement.local_slots import LocalSlots
from rung.runner.placement.placement import Placer
from rung.runner.placement.scheduler import PlacementResult
from rung.runner.state import next_attempt, transitions
from rung.runner.state.store import Store
from rung.runner.trials.look_again import LookAgain
from rung.runner.trials.trial_folders import TrialFolders
from rung.runner.trials.trial_round import TrialRound
from rung.runner.validation.gate import Gate
from rung.runner.validation.run_validations import ValidationRunner

# How long a job is left alone after an unexpected error: at first, doubled each time, and at most.
ERROR_BACK_OFF_SECONDS = (1.0, 60.0)
# A longer time between two turns means that the controller was paused or stopped.
GAP_SECONDS = 30.0

Result = TypeVar("Result")
# Returns the place of each waiting job, or why it waits; the second argument is all active jobs.
Placing = Callable[[Sequence[Job], Sequence[Job]], list[tuple[Job, PlacementResult]]]


class Controller:
    """Gives every job its turn. The clocks and the sleep are passed in."""

    def __init__(
        self,
        store: Store,
        engines: Engines,
        paths: HomePaths,
        environ: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self._context = Context(store, engines, paths, environ, clock)
        self._store = store
        self._host_pool = HostPool(self._context)
        self._checkpoint_search = CheckpointSearch(self._context, self._host_pool.away)
        self._placer = Placer(self._context, self._host_pool, self._checkpoint_search)
        self._local_slots = LocalSlots(self._context, self._placer.bad_gpus)
        self._trials = TrialRound(self._context, self._checkpoint_search, self._placer.spare_gpus)
        self._side_trials, self._trial_folders = SideTrials(self._context, self._why_stay), TrialFolders(self._context)
        self._step_back = StepBack(self._context, self._checkpoint_search)
        self._look_again = LookAgain(self._context, self._checkpoint_search, self._gpu)
        self._supervisor = Supervisor(self._context, self._why_stay, self._on_healthy)
        self._orphans, self._probes = OrphanSweep(self._context), ProbeSweep(self._context)
        self._mirror = Mirror(self._context)
        self._gate, self._validation_runner = Gate(self._context), ValidationRunner(self._context)
        self._unexpected_errors: dict[str, tuple[float, float]] = {}
        self._last_turn = self._context.steady()

    def turn(self) -> int:
        """Give every active job and validation one turn; return how many there are."""
        self._notice_gap()
        validations = self._validation_runner.turn()
        jobs = self._store.jobs(active=True)
        for job in jobs:
            self._guarded(job, self._turn)
            self._guarded(job, self._side_trials.turn)
        self._orphans.turn()
        self._probes.turn()
        self._survey_hosts(jobs)
        self._place(jobs)
        return len(jobs) + validations + self._trial_folders.turn(jobs)

    def tidy(self) -> bool:
        """Go on with what is left to remove after the last job has ended; False: there is nothing to wait for."""
        return self._trial_folders.turn(()) > 0

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

    def _guarded(self, job: Job, act: Callable[[Job], Result]) -> Result | None:
        """Act on one job; an error becomes the reason of this job, and the other jobs go on."""
        try:
            return act(job)
        except StoreError:
            raise
        except Exception as error:
            self._on_error(job, error)
            return None

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
            return  # placed by `_place`
        if job.state is JobState.RECOVERING:
            self._recover(job)
        else:
            self._supervisor.supervise(job)

    # RUNNING

    def _on_healthy(self, job: Job, attempt: Attempt, history: LossHistory) -> None:
        if not self._look_again.consider(job, attempt, history):
            self._step_back.consider(job)

    # RECOVERING

    def _recover(self, job: Job) -> None:
        if job.cancel_requested:
            transitions.cancelled_between(self._store, job, at=self._context.now())
            self._checkpoint_search.forget(job.id)
            return
        if self._placer.is_moving(job):
            return
        attempts = self._store.attempts(job.id)[job.settled :]
        last = attempts[-1]
        if self._trials.advance(job, attempts, self._gpu(last)):
            return
        before = latest_start(last.level_at, last.readings) if last.level_at is not None else None
        checkpoints = self._checkpoint_search.find(job, attempts, before=before)
        if checkpoints is None:
            return
        elsewhere = self._placer.elsewhere(job, last.host) if last.is_remote else []
        interrupted = decide_interruption(job, attempts, checkpoints, elsewhere)
        if isinstance(interrupted, Fault):
            next_attempt.write_fault(self._store, last, interrupted, at=self._context.now())
            return
        decision = (
            interrupted
            or decide_look_again(job, attempts, checkpoints, self._gpu(last), elsewhere)
            or decide_step_back(job, main_line(attempts), checkpoints, elsewhere)
            or decide_with_trials(job, attempts, checkpoints, self._gpu(last), elsewhere, self._ledger(job))
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
        next_attempt.carry_out(self._store, job, decision, placement, at=self._context.now())
        self._checkpoint_search.forget(job.id)

    def _ledger(self, job: Job) -> Ledger:
        """Return what each rung did for all jobs; needed only for a job with `ladder: auto`."""
        if not job.spec.recovery.auto:
            return EMPTY
        return read_ledger(self._store.attempts_by_job(), self._context.engines.local.gpu())

    def _gpu(self, last: Attempt) -> Gpu | None:
        if last.gpus:
            return last.gpus[0]
        return None if last.is_remote else self._context.engines.local.gpu()

    # QUEUED, and hosts

    def _why_stay(self, job: Job, host: str) -> str:
        """Return why a job stays with a host that has been away for too long; empty: it moves."""
        if not self._placer.elsewhere(job, host):
            return "no other host could take the job"
        return "" if self._checkpoint_search.can_leave(job) else "no copy of its checkpoints is here"

    def _survey_hosts(self, jobs: list[Job]) -> None:
        """Keep the reports of the hosts fresh while a job may need another host."""
        may_move = (JobState.QUEUED, JobState.RECOVERING)
        remote = [job for job in jobs if job.spec.is_remote]
        if self._supervisor.unreachable or any(job.state in may_move for job in remote):
            try:
                self._host_pool.refresh()
            except RungError:
                return  # the jobs that wait show that the list of hosts cannot be read

    def _place(self, jobs: list[Job]) -> None:
        """Give every waiting job a place, here or on a host: its attempt is written, or it shows why it waits."""
        held = hold_back(self._context, jobs)
        may_wait = (job for job in jobs if not job.refused and job.id not in held)
        fresh = (self._store.job(job.id) for job in may_wait)
        waiting = [job for job in fresh if not job.ended and self._guarded(job, self._is_waiting)]
        # Apart from each other: jobs here need no list of hosts.
        self._share_out([job for job in waiting if not job.spec.is_remote], jobs, self._local_slots.results)
        self._share_out([job for job in waiting if job.spec.is_remote], jobs, self._placer.results)

    def _share_out(self, waiting: list[Job], jobs: list[Job], decide: Placing) -> None:
        try:
            results = decide(waiting, jobs)
        except StoreError:
            raise
        except Exception as error:
            # No list of hosts, or a bug: all of them wait, and show why.
            for job in waiting:
                self._on_error(job, error)
            return
        for job, result in results:
            self._guarded(job, partial(self._placer.apply, result))

    def _is_waiting(self, job: Job) -> bool:
        return self._placer.is_ready(job) and not (job.state is JobState.QUEUED and self._gate.blocks(job))
