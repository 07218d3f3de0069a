"""Decides which candidate runs next, and when no more is needed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rung.jobs.job import Attempt
from rung.jobs.model.knobs import RungName
from rung.jobs.model.trial import Candidate, Trial
from rung.recovery.decide.treatments import TREATMENTS, Budget
from rung.recovery.monitors.learning import LossHistory, was_falling
from rung.recovery.trials.candidates import is_tenth, lower_lr
from rung.recovery.trials.judge import is_better, meets_goal, shows_cure, survivors
from rung.recovery.trials.own_run import is_own_run

# Far too high an lr fails in the first steps, whether it is a tenth lower or not. Beyond them no two learning rates of
# the gauntlet failed at one step, where the lr was the cause.
FIRST_STEPS = 16
# So many rungs are always compared, where there are as many candidates.
FEWEST_COMPARED = 2
CLOSER_THAN_A_TENTH = 5.0


def next_index(trial: Trial, over: Sequence[Attempt]) -> int | None:
    """Return the candidate to run after these trials; None: no more is needed, or the cost is spent."""
    ran = [each for each in over if not is_own_run(each)]
    done = {each.trial.index for each in ran if each.trial}
    left = [index for index in run_order(len(trial.candidates)) if index not in done]
    left = [index for index in left if not _is_hopeless(trial, index, ran)]
    alive = survivors(ran)
    cured = len(done) >= FEWEST_COMPARED and any(shows_cure(each.trial) for each in alive if each.trial)
    if not left or cured:
        return None
    is_needed = not alive or len(done) < FEWEST_COMPARED
    return left[0] if is_needed or is_within_cost(trial, ran) else None


def is_within_cost(trial: Trial, ran: Sequence[Attempt]) -> bool:
    """Return whether one more trial after these costs no more than all of them may."""
    return steps_made(trial, ran) + trial.until - trial.start <= trial.bound


def steps_made(trial: Trial, ran: Sequence[Attempt]) -> int:
    """Return the steps of these trials; what one makes until it is stopped does not count."""
    return sum(max(0, min(each.furthest_step or 0, trial.until) - trial.start) for each in ran)


def run_order(count: int) -> Sequence[int]:
    """Return the order in which candidates run, which are listed with the most likely one first.

    The most likely one runs second: it can go on without a stop, as soon as there is another rung to compare it with.
    """
    return range(count) if count < FEWEST_COMPARED else (1, 0, *range(2, count))


def may_go_on(trial: Trial, over: Sequence[Attempt]) -> bool:
    """Return whether the next trial can become the job's own run: it has another rung to be compared with."""
    return len(over) + 1 >= min(FEWEST_COMPARED, len(trial.candidates))


def _is_hopeless(trial: Trial, index: int, over: Sequence[Attempt]) -> bool:
    """Return whether a lower lr than this candidate's has failed, so that this one would fail too."""
    candidate = trial.candidates[index]
    if candidate.rung == RungName.LOWER_LR and lr_is_no_cause(trial, over):
        return True
    failed = (each.trial.candidate for each in over if each.trial and each.fault is not None and not was_machine(each))
    lowered = [each.knobs.lr for each in failed if each.rung == RungName.LOWER_LR and each.knobs.lr is not None]
    lr = candidate.knobs.lr
    return candidate.rung == RungName.LOWER_LR and lr is not None and any(lr > each for each in lowered)


def lr_is_no_cause(trial: Trial, over: Sequence[Attempt]) -> bool:
    """Return whether two lower learning rates have failed at one step, and not in the first steps of their trials.

    Only an exact step shows that: a sparse log shows its first line for all that fail before it.
    """
    lowered = [each for each in over if each.trial and each.trial.candidate.rung == RungName.LOWER_LR]
    failed = [each for each in lowered if each.fault is not None and _is_exact(each) and not was_machine(each)]
    steps = [each.fault_step for each in failed if each.fault_step > trial.start + FIRST_STEPS]
    return len(steps) > len(set(steps))


def _is_exact(attempt: Attempt) -> bool:
    """Return whether the step of a fault is exact: it was seen from inside, or the log shows the step before it."""
    seen = attempt.trial.readings if attempt.trial else ()
    return attempt.hands == "" or any(step == attempt.fault_step - 1 for step, _ in seen)


def lowered_lr(over: Sequence[Attempt]) -> list[Attempt]:
    """Return the trials of a lower lr, the lowest first."""
    found = [each for each in over if each.trial and each.trial.candidate.rung == RungName.LOWER_LR]
    return sorted(found, key=lambda each: each.asked.lr or 0.0)


def still_falls(trial: Trial) -> bool | None:
    """Return whether the loss of a trial still fell over the last half of its window; None: too few readings."""
    history = LossHistory()
    for step, loss in trial.readings:
        history.add(step, loss)
    return was_falling(history, trial.until, trial.start)


def _higher_failed_at_once(lowest: Attempt, over: Sequence[Attempt], about: Attempt) -> bool:
    """Return whether the next higher lr, of a trial or of the run itself, failed in its first steps."""
    above = [each for each in lowered_lr(over) if (each.asked.lr or 0.0) > (lowest.asked.lr or 0.0)]
    nearest = above[0] if above else about
    if lowest.trial is None or nearest.fault is None or was_machine(nearest):
        return False
    return nearest.fault_step <= lowest.trial.start + FIRST_STEPS


def was_between(over: Sequence[Attempt]) -> bool:
    """Return whether an lr between two tenths has been tried: it is closer to a tenth than the next one."""
    tried = [each.trial.candidate for each in lowered_lr(over) if each.trial]
    pairs = [pair for pair in pairwise(tried) if is_tenth(pair[0]) != is_tenth(pair[1])]
    return any((high.lr_share or 0.0) < CLOSER_THAN_A_TENTH * (low.lr_share or 0.0) for low, high in pairs)


def lower_lr_at_once(over: Sequence[Attempt], attempts: Sequence[Attempt]) -> Candidate | None:
    """Return a tenth of the lowest lr, if it is clear before other rungs are tried that the lr is the cause."""
    lowest = next(iter(lowered_lr(over)), None)
    if lowest is None or lowest.trial is None or was_machine(lowest):
        return None
    about = next(each for each in attempts if each.number == lowest.trial.about)
    found = _failed_later(lowest, over, about) or _lower_is_better(lowest, over, about)
    return lower_lr(lowest.trial.candidate) if found else None


def _failed_later(lowest: Attempt, over: Sequence[Attempt], about: Attempt) -> bool:
    """Return whether nothing got past the fault, and the lower lr has failed in its first steps too, but later."""
    if lowest.trial is None or lowest.fault is None or survivors(over):
        return False
    later = about.fault_step < lowest.fault_step <= lowest.trial.start + FIRST_STEPS
    return later and about.hands == "" and about.resume_point == lowest.trial.start and _is_exact(lowest)


def _lower_is_better(lowest: Attempt, over: Sequence[Attempt], about: Attempt) -> bool:
    """Return whether the lower of two learning rates is better, and neither has learned more than the run: nothing.

    A CNN whose lr was 700 times too high came to 2.08 with a hundredth of it, where its loss began at 2.11.
    """
    trial, lowered = lowest.trial, lowered_lr(over)
    if trial is None or len(over) < FEWEST_COMPARED or len(lowered) < len(over) or about.healthy_loss is not None:
        return False
    if lowest not in survivors(over) or not trial.readings or trial.goal is None or meets_goal(trial):
        return False
    higher = lowered[1]
    worse = higher not in survivors(over) or (higher.trial is not None and is_better(trial, higher.trial))
    return worse and not was_machine(higher) and is_within_cost(trial, over)


def lower_lr_to_try(winner: Attempt | None, over: Sequence[Attempt], attempts: Sequence[Attempt]) -> Candidate | None:
    """Return the next lower lr to try: the lowest so far has failed, or it won, or none of them learns."""
    lowered = lowered_lr(over)
    lowest = lowered[0] if lowered else None
    if lowest is None or lowest.trial is None or was_machine(lowest) or lr_is_no_cause(lowest.trial, over):
        return None
    if was_between(over):
        return None  # the tenths around it have been compared
    about = next(each for each in attempts if each.number == lowest.trial.about)
    won = winner is not None and winner.number == lowest.number and len(lowered) > 1
    # Where it learns and ten times as much failed at once, a tenth is too low: in ten trainings it was never better.
    won = won and not (still_falls(lowest.trial) and _higher_failed_at_once(lowest, over, about))
    cured = winner is not None and winner.trial is not None and shows_cure(winner.trial)
    # The run had learned nothing yet, and neither has any trial: the lr may be too high by more than was tried.
    unlearned = lowest.trial.goal is not None and about.healthy_loss is None and not meets_goal(lowest.trial)
    affordable = is_within_cost(lowest.trial, over) and (won or (unlearned and not cured))
    # An lr that a healthy stretch has shown to be right is not at fault, if another rung gets past the fault.
    blameless = about.healthy_loss is not None and any(_is_other_rung(each) for each in survivors(over))
    failed = lowest.fault is not None and not cured and not blameless
    return lower_lr(lowest.trial.candidate) if affordable or failed else None


def _is_other_rung(attempt: Attempt) -> bool:
    return attempt.trial is not None and attempt.trial.candidate.rung not in (None, RungName.LOWER_LR)


def to_repeat(over: Sequence[Attempt]) -> int | None:
    """Return the first candidate whose last trial was ended by the machine; several may have run side by side."""
    latest = {each.trial.index: each for each in over if each.trial}
    return min((index for index, each in latest.items() if was_machine(each)), default=None)


def was_machine(attempt: Attempt) -> bool:
    return attempt.fault is not None and TREATMENTS[attempt.fault.kind].budget is Budget.INFRA
