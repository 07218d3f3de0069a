"""Tests which young runs are looked at: those without a fault whose loss is level and still high."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from rung.jobs.job import Attempt
from rung.recovery.monitors.learning import LossHistory
from rung.recovery.trials.first_look import doubtful_steps, first_look
from rung.recovery.trials.own_run import last_readings
from tests.recovery.trials.test_look_again import course
from tests.support.jobs_in_trouble import an_attempt
from tests.support.trials_in_memory import a_job_with_trials, faulty, labels

ACT = {"trials": "on", "not_learning": "act"}
JOB = a_job_with_trials(recovery=ACT)
FIRST = replace(an_attempt(1, JOB.knobs, None), first_step=1, first_loss=3.0)


def at(share: float) -> LossHistory:
    """Return the losses of a run that stay at a share of the untrained model's from the beginning."""
    return course(lambda _: 3.0 * share, 1000)


def steps(history: LossHistory, first: Attempt = FIRST) -> list[int]:
    return doubtful_steps(JOB, [first], history, None)


def test_a_young_run_is_looked_at_if_its_loss_is_level_and_still_high() -> None:
    assert steps(at(1.0)) == [200, 300, 450]
    assert steps(at(0.6)) == [200, 300, 450]
    assert steps(at(0.4)) == []
    assert steps(course(lambda step: 1 + 300 / (step + 100), 1000)) == []


def test_a_loss_around_zero_has_no_level() -> None:
    history, noise = LossHistory(), random.Random(0)
    for step in range(1, 500):
        history.add(step, noise.gauss(0.1, 1.0))
    assert steps(history, replace(FIRST, first_loss=None)) == []


def test_a_warm_up_is_waited_for() -> None:
    history = LossHistory()
    for step in range(1, 500):
        history.add(step, 3.0 + 0.01 * (step % 3), lr=min(step, 180) * 1e-3)
    assert steps(history) == [450]


@pytest.mark.parametrize(
    "recovery", [{"trials": "off", "not_learning": "act"}, {"trials": "on"}, {**ACT, "ladder": ["raise_clip", "fp32"]}]
)
def test_only_a_job_that_asks_for_it_and_may_lower_its_lr_is_looked_at(recovery: dict[str, object]) -> None:
    assert doubtful_steps(a_job_with_trials(recovery=recovery), [FIRST], at(1.0), None) == []


def test_a_run_that_resumed_or_failed_or_was_looked_at_is_not_young() -> None:
    assert steps(at(1.0), replace(FIRST, resumed_step=100)) == []
    again = replace(FIRST, number=2)
    assert doubtful_steps(JOB, [faulty(JOB), again], at(1.0), None) == []
    assert doubtful_steps(JOB, [replace(FIRST, level_at=200), again], at(1.0), None) == []
    assert doubtful_steps(JOB, [FIRST, again], at(1.0), None) == [200, 300, 450]


def test_a_tenth_and_a_hundredth_of_the_lr_are_tried_from_scratch_over_the_same_steps() -> None:
    level = replace(FIRST, level_at=300, readings=last_readings(at(1.0), 300))
    found = first_look(JOB, [level], None)
    assert found is not None and found.trial is not None and found.checkpoint is None
    assert labels(found.trial) == ["lower_lr x0.1", "lower_lr x0.01"]
    assert (found.trial.start, found.trial.until, found.trial.goal) == (0, 300, pytest.approx(2.94))
    assert "the loss is level at step 300: trial 1, of at most 2, from scratch to step 300" in found.because
    assert first_look(JOB, [FIRST], None) is None


def test_a_loss_that_falls_from_a_blow_up_has_not_learned() -> None:
    """It falls all the time, and is never lower than in its first steps."""
    blown_up = course(lambda step: 2.7 if step < 60 else 3 + 400 / step, 460)
    assert steps(blown_up, replace(FIRST, first_loss=None)) == [200, 300, 450]
    assert steps(course(lambda step: 2.7 - step / 300, 460), replace(FIRST, first_loss=None)) == []


def test_a_loss_that_soared_at_first_has_not_learned_however_low_it_is() -> None:
    assert steps(course(lambda step: 60.0 if 3 <= step <= 5 else 0.3, 460)) == [200, 300, 450]
    assert steps(course(lambda step: 60.0 if step == 3 else 0.3, 460)) == []


@pytest.mark.parametrize(("spike", "tried"), [(3e6, ["raise_clip"]), (3.3, [])])
def test_a_run_with_spikes_is_also_tried_with_a_clip(spike: float, tried: list[str]) -> None:
    history = course(lambda step: spike if step % 50 == 33 else 3.0, 300)
    found = first_look(JOB, [replace(FIRST, level_at=300, readings=last_readings(history, 300))], None)
    assert found is not None and found.trial is not None
    assert labels(found.trial) == [*tried, "lower_lr x0.1", "lower_lr x0.01"]
