"""Takes the run as it is for one of the trials: its losses are known already, so that it need not run again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rung.jobs.job import Attempt
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.trial import SURVIVED, Candidate, Trial
from rung.recovery.monitors.learning import LossHistory

# How many losses of a run are kept for its trials.
MOST_READINGS = 400


def last_readings(history: LossHistory, until: int) -> tuple[tuple[int, float], ...]:
    """Return the last losses of a run, up to a step, few enough to store."""
    return tuple(history.readings(0, until)[-MOST_READINGS:])


def is_comparable(attempt: Attempt) -> bool:
    """Return whether the run as it is may be as good as any trial.

    It may if its loss is level. It may also if its loss was well and jumped: such a loss can fall again by itself.
    """
    fault = attempt.fault
    jumped = fault is not None and fault.kind is FaultKind.DIVERGENCE and attempt.healthy_loss is not None
    return bool(attempt.readings) and (jumped or attempt.level_at is not None)


def own_run(attempts: Sequence[Attempt], trial: Trial) -> Attempt | None:
    """Return the job's run before the trials as one of them; None: it failed, so that it cannot win."""
    about = next(each for each in attempts if each.number == trial.about)
    if not is_comparable(about):
        return None
    start, until = _window(about, trial)
    as_it_is = Trial(
        about=about.number,
        index=0,
        candidates=(Candidate(None, about.asked),),
        start=start,
        fault_step=trial.fault_step,
        until=until,
        bound=trial.bound,
        goal=trial.goal,
        readings=about.readings,
        verdict=SURVIVED,
    )
    return replace(about, fault=None, furthest_step=until, rung=None, trial=as_it_is)


def _window(about: Attempt, trial: Trial) -> tuple[int, int]:
    """Return a window whose last half is where the run as it is differs: since its jump, or the end of the trials."""
    fault = about.fault
    if fault is None or fault.began is None:
        return trial.start, trial.until
    last = about.readings[-1][0]
    return fault.began - (last - fault.began), last


def is_own_run(attempt: Attempt) -> bool:
    return attempt.trial is not None and attempt.trial.about == attempt.number
