"""Owns the loop: every job gets its turn, whatever happens to the others.

All of its memory can be rebuilt from the store and the logs, so it may be killed at any instant: what was decided is
written before it is done, and what was done is found again by the engine.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from functools import partial

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import RungError, StoreError
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.model.terminal_text import clean
from rung.recovery.decide.decide import Relaunch, decide
from rung.recovery.decide.rung_stats import EMPTY, Ledger, read_ledger
from rung.recovery.decide.step_back import decide_step_back
from rung.runner.checkpoints.mirror import Mirror
from rung.runner.checkpoints.search import CheckpointSearch
from rung.runner.context import Context
from rung.runner.controller.orphans import Sweep
from rung.runner.controller.step_back import SteppingBack
from rung.runner.controller.supervise import Supervisor
from rung.runner.engine_pool import Engines
from rung.runner.placement.host_pool import HostPool
from rung.runner.placement.placement import Placing
from rung.runner.state import next_attempt, transitions
from rung.runner.state.store import Store
from rung.runner.validation.gate import Gate
from rung.runner.validation.gate import because as gate_said
from rung.runner.validation.run_validations import ValidationRunner

# A person follows at this pace; a fault costs at most this much more.
TURN_SECONDS = 0.2
# After something unforeseen a job rests: the first time this long, doubled each time, at most.
STUMBLE_SECONDS = (1.0, 60.0)
LOCALHOST = "localhost"


class Controller:
    """Gives every job its turn. The clock and the sleep are passed in."""

    def __init__(
        self,
        store: Store,
        engines: Engines,
        paths: HomePaths,
        environ: Mapping[str, str],
        clock: tuple[Callable[[], float], Callable[[float], None]],
    ) -> None:
        self._context = Context(store, engines, paths, environ, *clock)
        self._store = store
        self._roster = HostPool(self._context)
        self._finder = CheckpointSearch(self._context, self._given_up)
        self._placing = Placing(self._context, self._roster, self._finder)
        self._stepping = SteppingBack(self._context, self._finder)
        self._attendant = Supervisor(self._context, self._placing.elsewhere, self._stepping.consider)
        self._sweep, self._mirror = Sweep(self._context), Mirror(self._context)
        self._gate, self._validating = Gate(self._context), ValidationRunner(self._context)
        self._stumbled: dict[str, tuple[float, float]] = {}

    def turn(self) -> int:
        """Give every active job and validation one turn; return how many there are."""
        validations = self._validating.turn()
        jobs = self._store.jobs(active=True)
        for job in jobs:
            self._guarded(job, self._turn)
        self._sweep.turn()
        self._look_at_hosts(jobs)
        self._place(jobs)
        return len(jobs) + validations

    def close(self) -> None:
        self._context.tasks.close()
        self._context.engines.close()

    def _guarded(self, job: Job, act: Callable[[Job], None]) -> None:
        """Act on one job; whatever goes wrong is told there, and the others go on."""
        try:
            act(job)
        except StoreError:
            raise
        except RungError as error:
            self._context.say(job, str(error))
        except Exception as error:
            self._stumble(job, error)

    def _stumble(self, job: Job, error: Exception) -> None:
        """Tell of an error that nobody foresaw, and leave the job alone for a while."""
        first, most = STUMBLE_SECONDS
        before, at = self._stumbled.get(job.id, (0.0, 0.0))
        again = self._context.now() - at < 2 * before + first
        delay = min(before * 2, most) if again else first
        self._stumbled[job.id] = (delay, self._context.now())
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
        said = clean(f"Rung stumbled over this job: {type(error).__name__} in {where}: {error}")[:500]
        self._attendant.forget(job.id)
        self._finder.forget(job.id)
        self._context.rest(job.id, delay)
        with self._store.transaction():
            self._store.say(job.id, f"{said}; it is left as it is and tried again")
            self._store.add_event(job.id, None, "stumbled", {"because": said}, at=self._context.now())

    def _turn(self, job: Job) -> None:
        self._mirror.turn(job)
        errand = self._context.tasks.take(job.id)
        if errand is not None:
            self._context.progress.pop(job.id, None)
            error = errand.error
            if error is not None:
                errand.failed(job, error)
            else:
                errand.then(job, errand.future.result())
        elif self._context.tasks.busy(job.id):
            told = self._context.progress.pop(job.id, None)
            if told is not None:
                self._context.say(job, clean(told))
        elif not self._context.rests(job.id):
            self._step(job)

    def _step(self, job: Job) -> None:
        if job.state is JobState.QUEUED:
            self._launch(job)
        elif job.state is JobState.RECOVERING:
            self._recover(job)
        else:
            self._attendant.attend(job)

    # QUEUED

    def _launch(self, job: Job) -> None:
        """Write the first attempt, or the one a person asked for; what goes to a host is placed among the others."""
        if self._gate.holds(job) or job.spec.image is not None:
            return
        attempts = self._store.attempts(job.id)
        checkpoints = self._finder.find(job, attempts) if attempts else []
        if checkpoints is not None:
            placement = next_attempt.same_spot(attempts[-1]) if attempts else next_attempt.Placement(LOCALHOST)
            attempt = next_attempt.asked_by_person(job, attempts, checkpoints, placement, gate_said(self._store, job))
            transitions.launching(self._store, job, attempt, at=self._context.now())
            self._finder.forget(job.id)

    # RECOVERING

    def _recover(self, job: Job) -> None:
        if job.cancel_requested:
            transitions.cancelled_between(self._store, job, at=self._context.now())
            return
        if self._placing.moves(job):
            return
        attempts = self._store.attempts(job.id)[job.settled :]
        checkpoints = self._finder.find(job, attempts)
        if checkpoints is None:
            return
        last = attempts[-1]
        elsewhere = self._placing.elsewhere(job, last.host) if last.image is not None else []
        decision = decide_step_back(job, attempts, checkpoints) or decide(
            job, attempts, checkpoints, self._gpu(last), elsewhere, self._ledger(job)
        )
        if isinstance(decision, Relaunch) and (decision.avoid or last.host_lost):
            self._placing.move(job, decision)
            return
        next_attempt.carry_out(self._store, job, decision, next_attempt.same_spot(last), at=self._context.now())
        self._finder.forget(job.id)

    def _ledger(self, job: Job) -> Ledger:
        """Return what rungs did for all jobs; read only for a job that leaves their order to it."""
        if not job.spec.recovery.auto:
            return EMPTY
        return read_ledger(self._store.attempts_by_job(), self._context.engines.here.gpu())

    def _gpu(self, last: Attempt) -> Gpu | None:
        if last.image is None:
            return self._context.engines.here.gpu()
        return last.gpus[0] if last.gpus else None

    # Hosts

    def _given_up(self, job: Job, host: str) -> bool:
        """Tell whether a host has been away for longer than a job waits for it."""
        since, bound = self._roster.away_since(host), job.spec.recovery.host_lost_after
        return since is not None and bound is not None and self._context.now() - since >= bound

    def _look_at_hosts(self, jobs: list[Job]) -> None:
        """Keep the hosts in sight while a job may have to go to another one."""
        uneasy = (JobState.QUEUED, JobState.RECOVERING)
        ours = [job for job in jobs if job.spec.image is not None]
        if self._attendant.away or any(job.state in uneasy for job in ours):
            try:
                self._roster.refresh()
            except RungError:
                return  # a list of hosts that cannot be read is told to the jobs that wait

    def _place(self, jobs: list[Job]) -> None:
        fresh = (self._store.job(job.id) for job in jobs if job.spec.image is not None)
        waiting = [job for job in fresh if not job.ended and self._waits(job)]
        try:
            answers = self._placing.answers(waiting, jobs)
        except StoreError:
            raise
        except Exception as error:
            # No list of hosts, or a bug: all of them wait, and are told why.
            for job in waiting:
                self._guarded(job, partial(_raise, error))
            return
        for job, answer in answers:
            self._guarded(job, partial(self._placing.act, answer))

    def _waits(self, job: Job) -> bool:
        waits = False

        def ask(job: Job) -> None:
            nonlocal waits
            waits = self._placing.waits(job) and not (job.state is JobState.QUEUED and self._gate.holds(job))

        self._guarded(job, ask)
        return waits


def _raise(error: Exception, job: Job) -> None:
    raise error
