"""Decides how the winner of the trials goes on, and says what the trials have shown."""

from __future__ import annotations

from collections.abc import Sequence

from rung.jobs.job import Attempt, main_line
from rung.jobs.model.knobs import RungName
from rung.jobs.model.trial import Trial
from rung.recovery.decide.checkpoint_choice import SOUND, Checkpoint, Sighting, choose_checkpoint
from rung.recovery.decide.decide import Relaunch
from rung.recovery.trials.compare import level
from rung.recovery.trials.decide_trials import begins_anew, describe_cause, open_trials, start_of, with_own_run
from rung.recovery.trials.judge import pace, survivors
from rung.recovery.trials.own_run import is_own_run


def launch_winner(attempts: Sequence[Attempt], winner: Attempt, found: Sequence[Sighting]) -> Relaunch:
    """Return the launch of the winner: from the newest checkpoint of its trial, else from where all trials began.

    The run as it is goes on from its own newest checkpoint.
    """
    over = open_trials(attempts)
    assert winner.trial is not None
    candidate = winner.trial.candidate
    why = f"{describe_cause(attempts, winner.trial)}: {why_won(winner, with_own_run(attempts, over))}"
    if is_own_run(winner):
        choice = choose_checkpoint(found, main_line(attempts), None)
        # A jump that no rung changes is the script's own doing. A level loss is looked at again later.
        left_alone = winner.level_at is None
        return Relaunch(None, candidate.knobs, choice.checkpoint, f"{why}; {choice.because}", left_alone=left_alone)
    rung = RungName(candidate.rung) if candidate.rung else None
    about = next(each for each in attempts if each.number == winner.trial.about)
    if begins_anew(about, winner.trial, attempts):
        return Relaunch(rung, candidate.knobs, None, f"{why}; it is early in the run, so it begins from scratch")
    own = [each for each in found if isinstance(each, Checkpoint) and each.verdict in SOUND]
    newest = max((each for each in own if each.step > winner.trial.start), key=lambda each: each.step, default=None)
    place = (
        f"it goes on from {newest.name} of its trial" if newest else "its trial saved nothing: it begins there again"
    )
    until = winner.trial.until
    return Relaunch(rung, candidate.knobs, newest or start_of(over), f"{why}; {place}", tried_until=until)


def why_won(winner: Attempt, over: Sequence[Attempt]) -> str:
    """Say what the trials have shown, with the losses that decided."""
    trial = winner.trial
    assert trial is not None
    others = [each for each in over if each.number != winner.number and each.trial is not None]
    seen = level(trial.readings, trial.start, trial.until)
    loss = f"a loss of {seen:.4g}" if seen is not None else "no loss was seen"
    rest = "; ".join(
        f"{each.trial.candidate.label}: {_came_to(each)}{_time_of(each.trial, winner)}" for each in others if each.trial
    )
    if winner.level_at is not None:
        return f"a lower lr is not clearly better ({loss} at step {trial.until} as it is; {rest}), so the run goes on"
    if trial.candidate.rung is None:
        return f"no rung changes it ({loss} at step {trial.until} as it is; {rest}), so the run is left alone"
    joint = " with" if seen is not None else ";"
    return f"{trial.candidate.label} won the trials{joint} {loss} at step {trial.until} ({rest})"


def _came_to(attempt: Attempt) -> str:
    trial = attempt.trial
    assert trial is not None
    seen = level(trial.readings, trial.start, trial.until)
    return f"{seen:.4g}" if seen is not None and attempt in survivors([attempt]) else trial.verdict or "no result"


def _time_of(trial: Trial, winner: Attempt) -> str:
    """Say how long a step took compared with the winner's, on a GPU and with another precision."""
    won = winner.trial
    if won is None or not winner.gpus or not trial.ms or not won.ms or pace(trial) == pace(won):
        return ""
    return f", {trial.ms / won.ms:.3g}x the time of a step"
