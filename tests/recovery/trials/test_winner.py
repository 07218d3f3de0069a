"""Tests how the winner goes on, and the run as it is where no rung is better."""

from __future__ import annotations

from dataclasses import replace

from rung.jobs.job import Attempt
from rung.jobs.model.fault import FaultKind
from rung.recovery.decide.checkpoint_choice import Checkpoint
from rung.recovery.decide.decide import Relaunch
from rung.recovery.trials.decide_trials import Winner, decide_with_trials, next_trial
from rung.recovery.trials.own_run import own_run
from rung.recovery.trials.winner import launch_winner, why_won
from tests.support.jobs_in_trouble import a_checkpoint
from tests.support.trials_in_memory import a_job_with_trials, faulty, tried

JOB = a_job_with_trials(recovery={"trials": {"steps": 100}})
FIRST = faulty(JOB, furthest_step=10_000)


def first_trial(faulty_one: Attempt = FIRST, *checkpoints: Checkpoint) -> Relaunch:
    found = decide_with_trials(JOB, [faulty_one], checkpoints, None)
    assert isinstance(found, Relaunch) and found.trial is not None
    return found


def test_the_winner_goes_on_from_the_newest_checkpoint_of_its_trial() -> None:
    winner = tried(first_trial(), 2, 1.0)
    own = [replace(a_checkpoint(step), residence=("localhost", 2)) for step in (50, 100)]
    poisoned = replace(a_checkpoint(150, "nonfinite"), residence=("localhost", 2))
    decision = launch_winner([FIRST, winner], winner, [*own, poisoned])
    assert decision.checkpoint == own[1] and decision.trial is None
    assert (decision.rung, decision.knobs) == ("lower_lr", winner.asked)
    assert "lower_lr x0.01 won the trials with a loss of 1 at step 150" in decision.because
    assert "goes on from step_100.pt of its trial" in decision.because
    # Its trial has shown that it gets through these steps, so no early warning counts there.
    assert decision.tried_until == 150


def test_a_winner_that_saved_nothing_begins_where_all_trials_began() -> None:
    winner = replace(tried(first_trial(), 2, 1.0), resumed_from="step_40.pt", planned_step=40, checkpoint_from=("a", 1))
    decision = launch_winner([FIRST, winner], winner, [])
    assert decision.checkpoint == Checkpoint("step_40.pt", 40, 0.0, residence=("a", 1))


def test_a_winner_whose_losses_were_not_seen_near_the_end_says_so() -> None:
    winner = tried(first_trial(), 2, 1.0)
    assert winner.trial is not None
    silent = replace(winner, trial=replace(winner.trial, readings=()))
    assert "lower_lr x0.01 won the trials; no loss was seen at step 150" in why_won(silent, [silent])


def jumped(after: float, healthy_loss: float | None = 1.0) -> Attempt:
    """Return a run whose loss was at 1 and jumps at step 500; it was stopped at step 540."""
    readings = tuple((step, 1.0 if step < 500 else after) for step in range(300, 541))
    made = faulty(JOB, 540, FaultKind.DIVERGENCE, "spike", healthy_loss=healthy_loss, readings=readings)
    assert made.fault is not None
    return replace(made, fault=replace(made.fault, onset=500), furthest_step=10_000)


def trials_after(run: Attempt, loss: float) -> list[Attempt]:
    """Return the two trials after a jump, whose loss jumps at the same step."""
    decision: object = first_trial(run, a_checkpoint(490))
    over: list[Attempt] = []
    while isinstance(decision, Relaunch) and len(over) < 4:
        made = tried(decision, len(over) + 2, loss)
        assert made.trial is not None
        early = tuple((step, 1.0 if step < 500 else each) for step, each in made.trial.readings)
        over.append(replace(made, trial=replace(made.trial, readings=early)))
        decision = next_trial(JOB, [run, *over], None)
    return over


def test_a_run_that_no_rung_changes_is_left_alone_from_its_newest_checkpoint() -> None:
    run = jumped(after=5.0)
    over = trials_after(run, 5.0)
    found = next_trial(JOB, [run, *over], None)
    assert isinstance(found, Winner) and found.attempt.number == run.number
    alone = launch_winner([run, *over], found.attempt, [a_checkpoint(490)])
    assert alone.left_alone and alone.rung is None and alone.knobs == run.asked
    assert alone.checkpoint == a_checkpoint(490) and "no rung changes it (a loss of 5 at step 540" in alone.because


def test_a_rung_that_spares_the_run_its_jump_wins() -> None:
    run = jumped(after=5.0)
    found = next_trial(JOB, [run, *trials_after(run, 1.0)], None)
    assert isinstance(found, Winner) and found.attempt.rung is not None


def test_a_run_that_was_never_well_cannot_win_as_it_is() -> None:
    """Its loss may look level after a blow-up; nothing says that it comes down again."""
    run = jumped(after=5.0, healthy_loss=None)
    trial = first_trial(run, a_checkpoint(490)).trial
    assert trial is not None and own_run([run], trial) is None
