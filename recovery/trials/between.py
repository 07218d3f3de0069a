"""Decides whether an lr between two tenths is tried after a lower lr has won the trials.

The ladder of learning rates goes by tenths, and the right one can lie between two of them. It is looked for where the
loss of the winner is still high: above the winner if that still falls, and below it if it is level.
"""

from __future__ import annotations

from collections.abc import Sequence

from rung.jobs.job import Attempt
from rung.jobs.model.knobs import RungName
from rung.jobs.model.trial import Candidate, Trial
from rung.recovery.monitors.learning import MOSTLY_LEARNED
from rung.recovery.trials.candidates import is_tenth, times_lr
from rung.recovery.trials.compare import level
from rung.recovery.trials.sequence import lowered_lr, steps_made, still_falls, was_between

# The middle of two tenths, and twice the winner: a short trial prefers too high an lr, so the way up is shorter. With
# 1.6 times the right lr, three models ended within 2 % of it or better; with three times, 4 and 17 % worse.
LOWER, HIGHER = 0.3, 2.0


def lr_between(
    winner: Attempt | None, over: Sequence[Attempt], attempts: Sequence[Attempt], most: int
) -> Candidate | None:
    """Return the lr between two tenths to try, once in all trials about a fault, and as one of at most `most` trials.

    None also for a run that had learned before its fault: its winner is compared with what it had learned.
    """
    trial = winner.trial if winner is not None else None
    if winner is None or trial is None or trial.candidate.rung != RungName.LOWER_LR or not is_tenth(trial.candidate):
        return None
    about = next(each for each in attempts if each.number == trial.about)
    if about.fault is None or about.healthy_loss is not None or not _learns_and_is_high(trial):
        return None
    # One of those that came to the end wins, and loses nothing.
    if was_between(over) or len(over) >= most or steps_made(trial, over) > trial.bound:
        return None
    falls = still_falls(trial)
    lower_lost = (lowered_lr(over)[0].asked.lr or 0.0) < (winner.asked.lr or 0.0)
    if falls:
        return times_lr(trial.candidate, HIGHER)
    return times_lr(trial.candidate, LOWER) if falls is False and lower_lost else None


def _learns_and_is_high(trial: Trial) -> bool:
    """Return whether the loss is below that of the untrained model, but above half of it, as the goal tells that."""
    found = level(trial.readings, trial.start, trial.until)
    return trial.goal is not None and found is not None and MOSTLY_LEARNED * trial.goal < found <= trial.goal
