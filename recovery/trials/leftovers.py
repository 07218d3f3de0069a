"""Finds the trials whose folders nobody needs any more."""

from __future__ import annotations

from collections.abc import Sequence

from rung.jobs.job import Attempt, Job, Outcome, main_line
from rung.recovery.trials.decide_trials import open_trials


def unneeded_trials(job: Job, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the trials that have ended and did not win, once they are decided or the job has ended.

    The folder in which the winner goes on is the job's own from then on, so it is never among them.
    """
    if not any(each.is_trial for each in attempts):
        return []
    undecided = [] if job.ended else open_trials(attempts[job.settled :])
    kept = {each.number for each in undecided}
    used = {each.residence for each in main_line(attempts)} | _sources_in_use(attempts)
    over = [each for each in attempts if each.is_trial and each.outcome is not Outcome.PENDING]
    left = [each for each in over if each.number not in kept and each.residence not in used]
    return [each for each in left if each.trial is not None and not each.trial.folder_removed]


def _sources_in_use(attempts: Sequence[Attempt]) -> set[int]:
    """Return the residences from which a checkpoint may still be copied."""
    return {each.checkpoint_from[1] for each in attempts if each.checkpoint_from and each.outcome is Outcome.PENDING}
