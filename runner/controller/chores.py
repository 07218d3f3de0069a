"""Does what concerns no single job: places waiting jobs, looks after hosts, orphans, trial folders and validations.

It is done when something has changed, and once a second. Placing many jobs takes several turns, so that the jobs that
run get theirs in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rung.jobs.job import Job
from rung.jobs.model.errors import RungError, StoreError
from rung.jobs.model.state import JobState
from rung.runner.context import Context
from rung.runner.controller.orphans import OrphanSweep
from rung.runner.controller.probe_sweep import ProbeSweep
from rung.runner.placement.group_limit import hold_back
from rung.runner.placement.host_pool import HostPool
from rung.runner.placement.local_slots import LocalSlots
from rung.runner.placement.placement import Placer
from rung.runner.placement.places import PlacementResult
from rung.runner.trials.trial_folders import TrialFolders
from rung.runner.validation.gate import Gate
from rung.runner.validation.run_validations import ValidationRunner

# Returns the place of each waiting job, or why it waits; the second argument is all active jobs.
Placing = Callable[[Sequence[Job], Sequence[Job]], list[tuple[Job, PlacementResult]]]
# The chores are due by themselves so often.
CHORE_SECONDS = 1.0
# How long jobs are placed before the others get their turns.
PLACING_SECONDS = 0.2
# The states in which a job may wait for a place.
MAY_WAIT = (JobState.QUEUED, JobState.RECOVERING)
KEY = "chores"


class Chores:
    """`on_error` takes what goes wrong with one job."""

    def __init__(
        self, context: Context, host_pool: HostPool, placer: Placer, on_error: Callable[[Job, Exception], None]
    ) -> None:
        self._context, self._host_pool, self._placer, self._on_error = context, host_pool, placer, on_error
        self._local_slots = LocalSlots(context, placer.bad_gpus)
        self._orphans, self._probes = OrphanSweep(context), ProbeSweep(context)
        self._gate, self._validations = Gate(context), ValidationRunner(context)
        self._trial_folders = TrialFolders(context)
        # How much is under way beside the jobs.
        self.open = 0

    def turn(self, *, host_is_away: bool) -> None:
        """Do all of them; `host_is_away`: a job may have to move because its host does not answer."""
        self._context.wake_in(KEY, CHORE_SECONDS)
        validations = self._validations.turn()
        jobs = self._context.store.jobs(active=True)
        self._orphans.turn()
        is_host_wanted = any(job.state in MAY_WAIT and job.spec.is_remote for job in jobs)
        self._probes.turn(is_host_wanted=is_host_wanted)
        self._survey_hosts(is_needed=host_is_away or is_host_wanted)
        self._place(jobs)
        self.open = validations + self._trial_folders.turn(jobs)

    def tidy(self) -> bool:
        """Go on with what is left to remove after the last job has ended; False: there is nothing to wait for."""
        return self._trial_folders.turn(()) > 0

    def _survey_hosts(self, *, is_needed: bool) -> None:
        """Keep the reports of the hosts fresh while a job may need another host."""
        if is_needed:
            try:
                self._host_pool.refresh()
            except RungError:
                return  # the jobs that wait show that the list of hosts cannot be read

    def _place(self, jobs: Sequence[Job]) -> None:
        """Give every waiting job a place, here or on a host: its attempt is written, or it shows why it waits."""
        held = hold_back(self._context, jobs)
        may_wait = (job for job in jobs if job.state in MAY_WAIT and not job.refused and job.id not in held)
        fresh = (self._context.store.job(job.id) for job in may_wait)
        waiting = [job for job in fresh if not job.ended and self._is_waiting(job)]
        # Apart from each other: jobs here need no list of hosts.
        self._share_out([job for job in waiting if not job.spec.is_remote], jobs, self._local_slots.results)
        self._share_out([job for job in waiting if job.spec.is_remote], jobs, self._placer.results)

    def _share_out(self, waiting: Sequence[Job], jobs: Sequence[Job], decide: Placing) -> None:
        try:
            results = decide(waiting, jobs)
        except StoreError:
            raise
        except Exception as error:
            # No list of hosts, or a bug: all of them wait, and show why.
            for job in waiting:
                self._on_error(job, error)
            return
        began = self._context.steady()
        for job, result in results:
            self._guarded(job, partial(self._placer.apply, result))
            if self._context.steady() - began > PLACING_SECONDS:
                self._context.agenda.wake(KEY)  # the others in the next turn
                return

    def _is_waiting(self, job: Job) -> bool:
        return bool(self._guarded(job, self._is_ready))

    def _is_ready(self, job: Job) -> bool:
        return self._placer.is_ready(job) and not (job.state is JobState.QUEUED and self._gate.blocks(job))

    def _guarded(self, job: Job, act: Callable[[Job], bool | None]) -> bool | None:
        """Act on one job; an error becomes the reason of this job, and the others go on."""
        try:
            return act(job)
        except StoreError:
            raise
        except Exception as error:
            self._on_error(job, error)
            return None
