"""Judges trials: whether one goes on, is stopped, or has won, and which of them is best when all are over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.knobs import Knobs, Precision, RungName
from rung.jobs.model.trial import BEHIND, Trial
from rung.recovery.ledger.step_cost import SAME_SPEED
from rung.recovery.trials.compare import Comparison, Readings, compare, level

# A lower lr has less noise in its loss and is ahead for that alone where the loss is level: an RNN led by 1 and 2 %
# with a tenth of the right lr, and then learned nothing. So a lower one wins against a higher one only beyond this, and
# against the run as it is too, unless its loss has jumped: such a run is not level.
LOWER_LR_LEAD = 0.05
# Where a trial is compared while it runs, as shares of the steps beyond the fault: from half of them on.
COMPARED_AT = (0.5, 0.625, 0.75, 0.875)


class Progress(StrEnum):
    """What happens to a trial now."""

    GOES_ON = "goes_on"  # its window is not over
    BEHIND = "behind"  # clearly worse than another one, at half of the window or later
    LEADS = "leads"  # its window is over, and no other one is better
    OVER = "over"  # its window is over, and another one is better


def survivors(over: Sequence[Attempt]) -> list[Attempt]:
    """Return the trials without a fault that reached the end of their window, in the order in which they ran."""
    return [each for each in over if each.fault is None and each.trial is not None and _reached(each, each.trial)]


def _reached(attempt: Attempt, trial: Trial) -> bool:
    # One that finished the whole run has no more steps to make.
    return trial.verdict != BEHIND and ((attempt.furthest_step or 0) >= trial.until or attempt.exit_code == 0)


def meets_goal(trial: Trial) -> bool:
    """Return whether the loss at the end of a trial shows a cure."""
    found = level(trial.readings, trial.start, trial.until)
    return trial.goal is not None and found is not None and found <= trial.goal


def shows_cure(trial: Trial) -> bool:
    """Return whether a trial that survived is a cure.

    Where no loss was seen before the fault, there is no goal to meet: then it is the most likely candidate that counts.
    """
    return trial.index == 0 if trial.goal is None else meets_goal(trial)


def compared(one: Trial, other: Trial) -> Comparison | None:
    """Compare two trials over the end of their window; that of the run as it is may end before the others."""
    window = min(one, other, key=lambda each: each.until)
    return compare(one.readings, other.readings, window.start, window.until)


def is_better(one: Trial, other: Trial, *, other_jumped: bool = False) -> bool:
    """Return whether the first of two trials is lower beyond the noise, and a lower lr beyond what it gains at once."""
    found = compared(one, other)
    if found is None or not found.is_lower:
        return False
    gains_at_once = (not other_jumped and _has_lower_lr(one, other)) or _is_step_back_up(one, other)
    return not gains_at_once or -found.difference > LOWER_LR_LEAD * found.size


def progress(trial: Trial, readings: Readings, step: int, others: Sequence[Attempt]) -> Progress:
    """Return what happens to a running trial that has come to `step`, beside the trials that are over."""
    beyond = trial.until - trial.fault_step
    marks = [mark for share in COMPARED_AT if (mark := trial.fault_step + int(share * beyond)) <= step]
    # Also those that it has long passed: a slow reader must come to the same decision as a quick one.
    if any(_is_behind(trial, readings, each, mark) for mark in marks for each in survivors(others)):
        return Progress.BEHIND
    if step < trial.until:
        return Progress.GOES_ON
    if any(each.outcome is Outcome.PENDING for each in others if each.is_trial):
        return Progress.GOES_ON  # it is judged when those beside it are over, and loses nothing if it wins
    return Progress.LEADS if _leads(replace(trial, readings=tuple(readings)), others) else Progress.OVER


def _is_behind(trial: Trial, readings: Readings, other: Attempt, mark: int) -> bool:
    assert other.trial is not None
    if trial.start == 0 and _has_lower_lr(trial, other.trial):
        return False  # from scratch, a lower lr is behind at first, and may be ahead at the end of the window
    found = compare(readings, other.trial.readings, trial.fault_step, mark)
    return found is not None and found.is_far_higher


def _has_lower_lr(one: Trial, other: Trial) -> bool:
    ours, theirs = one.candidate.knobs.lr, other.candidate.knobs.lr
    unchanged = other.candidate.rung is None
    return one.candidate.rung == RungName.LOWER_LR and (unchanged or theirs is None or (ours or 0.0) < theirs)


def _is_step_back_up(one: Trial, other: Trial) -> bool:
    """Return whether a higher lr is tried after a lower one, between two tenths; those before run the other way.

    A short trial prefers too high an lr, so it needs the lead of a lower one too.
    """
    lowered = one.candidate.rung == other.candidate.rung == RungName.LOWER_LR
    return lowered and one.index > other.index and _has_lower_lr(other, one)


def _leads(trial: Trial, others: Sequence[Attempt]) -> bool:
    """Return whether no other trial is better. The run as it is goes on rather than a change that is no better."""
    for attempt in survivors(others):
        assert attempt.trial is not None
        if is_better(attempt.trial, trial):
            return False
        is_comparable = compared(trial, attempt.trial) is not None
        if _is_kept_at_a_tie(attempt, trial) and is_comparable and not _is_better_than(trial, attempt):
            return False
        if _is_tied_with_a_higher_lr(trial, attempt.trial) or _is_no_better_step_up(trial, attempt.trial):
            return False
    return True


def _is_tied_with_a_higher_lr(trial: Trial, other: Trial) -> bool:
    lower = other.candidate.rung == RungName.LOWER_LR and _has_lower_lr(trial, other)
    return lower and compared(trial, other) is not None and not is_better(trial, other)


def _is_no_better_step_up(trial: Trial, other: Trial) -> bool:
    return _is_step_back_up(trial, other) and not is_better(trial, other)


def _is_kept_at_a_tie(attempt: Attempt, change: Trial) -> bool:
    """Return whether this is the run as it is, which goes on rather than a change that is no better.

    One that was level from the beginning does not: a lower lr that has learned as much from scratch goes on falling.
    """
    trial = attempt.trial
    if trial is None or trial.candidate.rung is not None:
        return False
    level_from_the_start = attempt.level_at is not None and trial.start == 0
    return not (level_from_the_start and (change.goal is None or meets_goal(change)))


def choose(over: Sequence[Attempt], *, on_gpu: bool) -> Attempt | None:
    """Return the trial that won: the lowest loss beyond the noise, then the fastest, then the most likely one."""
    alive = survivors(over)
    unchanged = next((each for each in alive if each.trial and each.trial.candidate.rung is None), None)
    if unchanged is not None and any(_is_better(each, unchanged) for each in alive):
        # The run as it is ended before the trials did, and one of them was clearly better while it ran.
        alive.remove(unchanged)
    if not alive:
        return None
    best = min(alive, key=lambda each: _level(each))
    tied = [each for each in alive if each is best or not _is_better(best, each)]
    if unchanged in tied:
        tied = [each for each in tied if each.trial and not _is_kept_at_a_tie(unchanged, each.trial)]
        tied = [each for each in tied if each is not unchanged] or [unchanged]
    return min(_fastest(tied) if on_gpu else tied, key=lambda each: each.trial.index if each.trial else 0)


def is_slower_than_equals(trial: Trial, others: Sequence[Attempt]) -> bool:
    """Return whether another trial is as good as this one, which leads, and takes less time: for a run on a GPU."""
    for attempt in survivors(others):
        other = attempt.trial
        if other is None or other.ms is None or trial.ms is None or pace(trial) == pace(other):
            continue
        # Of places in FP32 and FP32 as a whole that take as long, the whole is taken: it has no list that may grow.
        most = 1 / SAME_SPEED if _has_places(trial) and _is_fp32(other) else SAME_SPEED
        if trial.ms > most * other.ms and compared(trial, other) is not None and not is_better(trial, other):
            return True
    return False


def _has_places(trial: Trial) -> bool:
    return trial.candidate.knobs.fp32_modules is not None


def _is_fp32(trial: Trial) -> bool:
    return trial.candidate.knobs.precision is Precision.FP32


def best_level(attempts: Sequence[Attempt]) -> float | None:
    """Return the lowest loss at the end of the trials of a job's last fault; None: there were none."""
    last = max((each.trial.about for each in attempts if each.trial), default=None)
    over = [each for each in attempts if each.trial and each.trial.about == last]
    levels = [found for each in survivors(over) if math.isfinite(found := _level(each))]
    return min(levels, default=None)


def _level(attempt: Attempt) -> float:
    assert attempt.trial is not None
    found = level(attempt.trial.readings, attempt.trial.start, attempt.trial.until)
    return float("inf") if found is None else found


def _is_better(one: Attempt, other: Attempt) -> bool:
    assert one.trial is not None
    return _is_better_than(one.trial, other)


def _is_better_than(trial: Trial, other: Attempt) -> bool:
    assert other.trial is not None
    jumped = other.trial.candidate.rung is None and other.level_at is None
    return is_better(trial, other.trial, other_jumped=jumped)


def _fastest(tied: Sequence[Attempt]) -> list[Attempt]:
    """Return the fastest of these trials; on a CPU the precision says nothing about the speed on a GPU.

    Two that differ in their lr or clip alone are equally fast: what was measured is noise. FP32 as a whole is taken
    before places in FP32 that are as fast.
    """
    times: dict[Knobs, float] = {}
    for each in tied:
        if each.trial is None or each.trial.ms is None:
            return list(tied)
        times[pace(each.trial)] = min(each.trial.ms, times.get(pace(each.trial), math.inf))
    limit = SAME_SPEED * min(times.values())
    fast = [each for each in tied if each.trial and times[pace(each.trial)] <= limit]
    if not any(_is_fp32(each.trial) for each in fast if each.trial):
        return fast
    return [each for each in fast if each.trial and not _has_places(each.trial)]


def pace(trial: Trial) -> Knobs:
    """Return what the time of a step depends on."""
    return trial.candidate.knobs.but(lr=None, clip=None, growth_interval=None, skip=None)


@dataclass(frozen=True)
class Row:
    """One line of the table of trials."""

    rung: str
    steps: str
    loss: float | None
    ms: float | None
    verdict: str


def table(over: Sequence[Attempt], winner: Attempt | None) -> list[Row]:
    """Return the table of trials, for the history."""
    return [_row(each, each.trial, winner) for each in over if each.trial is not None]


def _row(attempt: Attempt, trial: Trial, winner: Attempt | None) -> Row:
    reached = min(attempt.furthest_step or trial.start, trial.until)
    loss = level(trial.readings, trial.start, trial.until) if survivors([attempt]) else None
    won = winner is not None and attempt.number == winner.number
    return Row(trial.candidate.label, f"{trial.start}-{reached}", loss, trial.ms, "won" if won else trial.verdict)
