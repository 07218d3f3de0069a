"""Tests when a cured run whose loss is level is stopped to try a lower lr, and from where."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import RungName
from rung.recovery.decide.decide import Relaunch
from rung.recovery.decide.incident import incident_after
from rung.recovery.decide.step_back import decide_step_back
from rung.recovery.monitors.learning import LossHistory
from rung.recovery.trials.decide_trials import Winner, decide_with_trials, next_trial
from rung.recovery.trials.judge import Progress, progress
from rung.recovery.trials.look_again import decide_look_again, has_saved, latest_start, level_steps, look_again
from rung.recovery.trials.own_run import last_readings, own_run
from rung.recovery.trials.winner import launch_winner
from tests.support.jobs_in_trouble import a_checkpoint
from tests.support.trials_in_memory import a_job_with_trials, faulty, tried

JOB = a_job_with_trials(recovery={"trials": {"steps": 100}})
FIRST = faulty(JOB)


def course(loss: Callable[[int], float], last: int, every: int = 1) -> LossHistory:
    noise, history = random.Random(0), LossHistory()
    for step in range(every, last + 1, every):
        history.add(step, loss(step) * noise.gauss(1, 0.02))
    return history


def level(_step: int) -> float:
    return 1.0


def falling(step: int) -> float:
    return 1 + 300 / (step + 100)


def cured(first: Attempt = FIRST) -> list[Attempt]:
    """Return the attempts of a run whose lr was lowered by trials; the last one goes on."""
    decision = decide_with_trials(JOB, [first], [], None)
    assert isinstance(decision, Relaunch) and decision.trial is not None
    won = tried(decision, 2, 1.0)
    assert won.trial is not None
    return [first, replace(won, trial=replace(won.trial, won=True, goes_on=True))]


def test_a_level_loss_is_seen_at_steps_that_do_not_depend_on_the_speed_of_the_run() -> None:
    steps = level_steps(JOB, cured(), course(level, 1000), None)
    assert steps == [200, 300, 450, 675]
    assert level_steps(JOB, cured(), course(level, 460), None) == [200, 300, 450]
    assert level_steps(JOB, cured(), course(level, 199), None) == []


def test_a_falling_loss_is_left_alone() -> None:
    assert level_steps(JOB, cured(), course(falling, 400), None) == []


def test_the_lr_is_in_doubt_only_if_it_was_lowered_or_the_run_had_not_learned() -> None:
    history = course(level, 1000)
    assert level_steps(JOB, [FIRST], history, None) == []
    clipped = cured(replace(FIRST, healthy_loss=1.0))
    clipped[-1] = replace(clipped[-1], asked=FIRST.asked.but(clip=1.0), rung=RungName.RAISE_CLIP)
    assert level_steps(JOB, clipped, history, None) == []
    unlearned = [FIRST, *clipped[1:]]
    assert level_steps(JOB, unlearned, history, None)
    off = a_job_with_trials(recovery={"trials": "off"})
    assert level_steps(off, cured(), history, None) == []
    alone = [*cured()[:1], replace(cured()[1], left_alone=True)]
    assert level_steps(JOB, alone, history, None) == []


def test_an_lr_at_its_floor_is_not_lowered_further() -> None:
    attempts = cured()
    lowest = replace(attempts[-1], asked=attempts[-1].asked.but(lr=JOB.knobs.lr and JOB.knobs.lr * 1e-3))
    assert level_steps(JOB, [FIRST, lowest], course(level, 1000), None) == []


def stopped(at: int = 450, every: int = 1) -> list[Attempt]:
    """Return the attempts of a cured run that was stopped because its loss is level."""
    history = course(level, at + 30, every)
    attempts = cured()
    level_one = replace(attempts[-1], level_at=at, readings=last_readings(history, at), outcome=Outcome.STOPPED)
    return [*attempts[:-1], replace(level_one, furthest_step=at + 30)]


def test_a_third_of_the_lr_is_tried_over_the_steps_before() -> None:
    attempts = stopped()
    found = look_again(JOB, attempts, [a_checkpoint(300), a_checkpoint(400)], None)
    assert found is not None and found.trial is not None and found.checkpoint == a_checkpoint(300)
    assert (found.trial.start, found.trial.until, found.rung) == (300, 450, "lower_lr")
    assert found.knobs.lr == pytest.approx((attempts[-1].asked.lr or 0) * 0.3)
    assert not found.trial.may_go_on  # a young run begins anew if it wins
    assert "the loss is level at step 450: trial 1, of at most 1, from step_300.pt to step 450" in found.because


def test_a_sparse_log_is_looked_at_over_more_steps() -> None:
    assert latest_start(450, stopped()[-1].readings) == 351
    assert latest_start(450, stopped(every=10)[-1].readings) == 261
    assert latest_start(450, ()) == 1


def test_there_is_no_look_where_no_checkpoint_is_near_enough() -> None:
    attempts = stopped(at=1000)
    assert look_again(JOB, attempts, [a_checkpoint(400)], None) is None
    assert look_again(JOB, attempts, [a_checkpoint(950)], None) is None
    later = [*attempts[:-1], replace(attempts[-1], resumed_step=920, planned_step=920)]
    assert look_again(JOB, later, [a_checkpoint(890)], None) is None
    gone_on = decide_look_again(JOB, attempts, [a_checkpoint(950)], None)
    assert isinstance(gone_on, Relaunch) and (gone_on.trial, gone_on.rung) == (None, None)
    assert gone_on.knobs == attempts[-1].asked and "no checkpoint is there to try a lower lr from" in gone_on.because


def test_a_run_that_reports_its_checkpoints_can_be_stopped_at_once() -> None:
    last = stopped()[-1]
    assert not has_saved(last)
    assert has_saved(replace(last, saved={"step_300.pt": 300}))
    assert not has_saved(replace(last, saved={"step_400.pt": 400, "step_100.pt": 100}))


def looked(loss: float) -> list[Attempt]:
    """Return the attempts after a look, in which the lower lr came to this loss."""
    attempts = stopped()
    decision = decide_look_again(JOB, attempts, [a_checkpoint(300)], None)
    assert isinstance(decision, Relaunch)
    return [*attempts, tried(decision, 3, loss)]


def test_a_lower_lr_that_is_no_better_is_dropped_and_the_run_goes_on_as_it_is() -> None:
    attempts = looked(1.0)
    found = next_trial(JOB, attempts, None)
    assert isinstance(found, Winner) and found.attempt.number == 2
    goes_on = launch_winner(attempts, found.attempt, [a_checkpoint(400)])
    assert (goes_on.rung, goes_on.left_alone, goes_on.checkpoint) == (None, False, a_checkpoint(400))
    assert goes_on.knobs == attempts[1].asked and "a lower lr is not clearly better" in goes_on.because


def test_a_lower_lr_needs_a_clear_lead_over_a_run_whose_loss_is_level() -> None:
    """It led by 1.2 % in its trial, for less noise alone, and the run began anew and ended 1.7 % worse for it."""
    found = next_trial(JOB, looked(0.98), None)
    assert isinstance(found, Winner) and found.attempt.number == 2
    attempts = stopped(at=1500)
    look = look_again(JOB, attempts, [a_checkpoint(1390)], None)
    assert look is not None and look.trial is not None
    own = own_run(attempts, look.trial)
    assert own is not None
    for loss, came in ((0.98, Progress.OVER), (0.9, Progress.LEADS)):
        assert progress(look.trial, [(step, loss) for step in range(1390, 1501)], 1500, [own]) is came


def test_a_lower_lr_that_is_better_wins() -> None:
    attempts = looked(0.8)
    found = next_trial(JOB, attempts, None)
    assert isinstance(found, Winner) and found.attempt.number == 3
    anew = launch_winner(attempts, found.attempt, [a_checkpoint(440)])
    assert (anew.rung, anew.checkpoint, anew.knobs) == ("lower_lr", None, found.attempt.asked)
    assert "it is early in the run, so it begins from scratch" in anew.because


def test_a_run_that_goes_on_from_a_trial_from_scratch_is_as_young_as_one_from_scratch() -> None:
    """A CNN went on from step 100 of a trial with ten times the right lr, and a look lowered it too late."""
    attempts = looked(0.8)
    first = decide_with_trials(JOB, attempts[:1], [], None)
    assert isinstance(first, Relaunch) and first.trial is not None and first.trial.start == 0
    won = tried(first, 2, 1.0)
    there = replace(attempts[1], number=3, resumed_from="step_100.pt", resumed_step=100, planned_step=100)
    goes_on = replace(there, checkpoint_from=("localhost", won.residence), trial=None)
    trial = attempts[2].trial
    assert trial is not None
    look = replace(attempts[2], number=4, trial=replace(trial, about=3))
    anew = launch_winner([attempts[0], won, goes_on, look], look, [a_checkpoint(440)])
    assert anew.checkpoint is None and "it begins from scratch" in anew.because
    # One that goes on from a checkpoint of a healthy run has more to lose.
    resumed = replace(goes_on, checkpoint_from=("localhost", 1))
    kept = launch_winner([attempts[0], won, resumed, look], look, [a_checkpoint(440)])
    assert kept.checkpoint == a_checkpoint(440)


def test_a_run_that_is_no_longer_young_goes_on_from_the_trial_that_won() -> None:
    attempts = stopped(at=1500)
    look = look_again(JOB, attempts, [a_checkpoint(1390)], None)
    assert look is not None and look.trial is not None and look.trial.may_go_on
    won = tried(look, 3, 0.8)
    assert launch_winner([*attempts, won], won, [a_checkpoint(1440)]).checkpoint == a_checkpoint(1440)


def test_the_next_look_comes_at_three_times_the_step() -> None:
    attempts = looked(1.0)
    again = replace(attempts[1], number=4, trial=None, rung=None, level_at=None, resumed_step=400, planned_step=400)
    history = course(level, 3000)
    assert level_steps(JOB, [*attempts, again], history, None)[0] >= 3 * 450


def test_a_level_run_is_past_its_fault_and_does_not_step_back() -> None:
    attempts = stopped()
    incident = incident_after(attempts, JOB.knobs)
    assert incident.root_fault is not None and incident.root_fault.kind is FaultKind.NAN_LOSS
    assert incident.proven_knobs == attempts[-1].asked
    assert decide_step_back(JOB, attempts, []) is None
    assert decide_look_again(JOB, [FIRST], [], None) is None
