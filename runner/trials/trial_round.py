"""Takes open trials one step further: launches the next one, or the winner, and writes the table when all are over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rung.jobs.job import Attempt, Job, Outcome, main_line
from rung.jobs.model.event import EventKind
from rung.jobs.model.gpu import Gpu
from rung.recovery.decide.decide import Relaunch
from rung.recovery.trials.decide_trials import Winner, next_trial, open_trials, side_by_side, with_own_run
from rung.recovery.trials.own_run import is_own_run
from rung.recovery.trials.winner import launch_winner
from rung.runner.checkpoints.residences import residence_of
from rung.runner.checkpoints.search import CheckpointSearch
from rung.runner.context import Context
from rung.runner.state.next_attempt import Placement, carry_out, same_placement, write_beside, write_decision
from rung.runner.state.trial_transitions import record_table

# Returns the GPUs beside an attempt's own that nobody needs, as many sets as asked for at most; None: not known yet.
SpareGpus = Callable[[Job, Attempt, int], list[tuple[Gpu, ...]] | None]


class TrialRound:
    def __init__(self, context: Context, checkpoint_search: CheckpointSearch, spare_gpus: SpareGpus) -> None:
        self._context, self._checkpoint_search, self._spare_gpus = context, checkpoint_search, spare_gpus

    def begin(self, job: Job, attempts: Sequence[Attempt], first: Relaunch) -> bool:
        """Write the first trials, side by side where there are GPUs; False: what is free is not known yet."""
        trial, last = first.trial, attempts[-1]
        assert trial is not None
        spare = self._spare_gpus(job, last, len(trial.candidates) - 1)
        if spare is None:
            return False
        beside, own = side_by_side(attempts, first, len(spare))
        placement, store, at = same_placement(last), self._context.store, self._context.now()
        with store.transaction():
            store.release(job.id)
            for each, gpus in zip(beside, spare, strict=False):
                write_beside(store, job, each, replace(placement, gpus=gpus), at=at)
            write_decision(store, job, own, placement, at=at)
        return True

    def advance(self, job: Job, attempts: Sequence[Attempt], gpu: Gpu | None) -> bool:
        """Take the next step; False: no trials are open, or no candidate helped, so that the ladder decides."""
        over = open_trials(attempts)
        if not over:
            return False
        running = [each.number for each in over if each.outcome is Outcome.PENDING]
        if running:
            self._context.set_reason(job, f"waits for the trials that run beside: attempts {running}")
            return True
        step = next_trial(job, attempts, gpu)
        if isinstance(step, Relaunch):
            carry_out(self._context.store, job, step, same_placement(over[-1]), at=self._context.now())
        elif isinstance(step, Winner):
            self._launch_winner(job, attempts, step.attempt)
        else:
            self._record_failure(over)
        return step is not None

    def _launch_winner(self, job: Job, attempts: Sequence[Attempt], winner: Attempt) -> None:
        of_trial = None if is_own_run(winner) else winner
        found = self._checkpoint_search.find(job, attempts, of_trial=of_trial)
        if found is None:
            return  # the search runs
        decision = launch_winner(attempts, winner, found)
        store, at = self._context.store, self._context.now()
        with store.transaction():
            record_table(store, with_own_run(attempts, open_trials(attempts)), winner, at=at)
            write_decision(store, job, decision, _placement(decision, attempts, winner), at=at)
        self._checkpoint_search.forget(job.id)

    def _record_failure(self, over: Sequence[Attempt]) -> None:
        store, last = self._context.store, over[-1]
        recorded = [event.attempt for event in store.events(last.job_id) if event.kind == EventKind.TRIALS]
        if last.number not in recorded:
            with store.transaction():
                record_table(store, over, None, at=self._context.now())


def _placement(decision: Relaunch, attempts: Sequence[Attempt], winner: Attempt) -> Placement:
    """Return where the winner goes on: in the folder of its trial, or in the job's own one."""
    here, line = same_placement(winner), main_line(attempts)
    if decision.checkpoint is not None and decision.checkpoint.residence == residence_of(winner):
        return here
    own = [each.residence for each in line if each.host == winner.host]
    return replace(here, residence=own[-1]) if own else here
