"""Tests what attempts cost: time, steps and GPU-seconds, and what of it was lost."""

from __future__ import annotations

from typing import Any

import pytest

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.trial import Candidate, Trial
from rung.runner.views.costs import busy_seconds, gpu_seconds, seconds_lost, seconds_run, steps_lost, steps_made

GPUS = tuple(Gpu("NVIDIA A100", (8, 0), uuid=f"GPU-{number}") for number in range(2))


def attempt(number: int = 1, **fields: Any) -> Attempt:
    return Attempt("a-1", number, "localhost", fields.pop("asked", Knobs()), None, "why", **fields)


@pytest.mark.parametrize(
    ("furthest", "resumed", "planned", "lost"),
    [
        (520, 500, 500, 20),
        (520, None, 500, 20),  # planned, until the job has reported it
        (520, 0, 500, 520),  # what the job reports counts
        (520, None, None, 520),
        (None, None, None, 0),
        (100, 200, 200, 0),
        (0, 0, 0, 0),
    ],
)
def test_steps_lost_are_those_that_had_to_be_run_again(
    furthest: int | None, resumed: int | None, planned: int | None, lost: int
) -> None:
    before = attempt(furthest_step=furthest)
    after = attempt(2, resumed_step=resumed, planned_step=planned)
    assert steps_lost(before, after, [before, after]) == lost


def trial(number: int, *, won: bool, **fields: Any) -> Attempt:
    tried = Trial(1, 0, (Candidate("lower_lr", Knobs()),), 0, 175, 275, 400, won=won)
    return attempt(number, trial=tried, **fields)


def test_of_a_run_whose_trial_began_earlier_all_is_lost_that_the_trial_made_again() -> None:
    """The next run goes on from step 100 of the trial that won, which began from scratch."""
    first, lost = attempt(furthest_step=175), trial(2, won=False, furthest_step=275)
    won, after = trial(3, won=True, furthest_step=275), attempt(4, resumed_step=100, furthest_step=900)
    attempts = [first, lost, won, after]
    assert [steps_lost(each, after, attempts) for each in attempts[:3]] == [175, 275, 175]
    assert steps_lost(after, None, attempts) == 0
    # What happened before has no part in it, nor has a trial that did not win.
    later = attempt(5, resumed_step=850)
    assert steps_lost(after, later, [*attempts, later]) == 50
    assert steps_lost(first, after, [first, lost, after]) == 75


def test_the_last_attempt_has_lost_nothing() -> None:
    assert steps_lost(attempt(furthest_step=5), None, []) == 0
    assert seconds_lost(attempt(furthest_step=5), None, 0) == 0.0


def test_seconds_lost_are_the_lost_steps_and_the_time_to_the_next_progress() -> None:
    # 100 steps in 50 s; 20 of them lost: 10 s. From the end to the next progress: 7.5 s.
    before = attempt(first_step=0, furthest_step=100, progress_at=1000.0, ended_at=1050.0)
    assert seconds_lost(before, attempt(2, progress_at=1057.5), 20) == 17.5
    assert seconds_lost(before, attempt(2, progress_at=1057.5), 0) == 7.5


def test_seconds_lost_are_not_known_before_the_next_progress() -> None:
    assert seconds_lost(attempt(ended_at=5.0), attempt(2), 0) is None
    assert seconds_lost(attempt(), attempt(2, progress_at=5.0), 0) is None


def test_seconds_lost_without_any_step_are_the_time_between() -> None:
    assert seconds_lost(attempt(ended_at=5.0), attempt(2, progress_at=9.0), 0) == 4.0
    early = attempt(first_step=3, furthest_step=3, progress_at=4.0, ended_at=5.0)
    assert seconds_lost(early, attempt(2, progress_at=9.0), 3) == 7.0


def test_an_attempt_runs_from_its_start_to_its_end_or_until_now() -> None:
    assert seconds_run(attempt(started_at=10.0, ended_at=12.5), until=99.0) == 2.5
    assert seconds_run(attempt(started_at=10.0), until=99.0) == 89.0
    assert seconds_run(attempt(), until=99.0) is None
    # A clock that was set back.
    assert seconds_run(attempt(started_at=10.0, ended_at=5.0), until=99.0) == 0.0


def test_of_an_attempt_whose_end_nobody_saw_what_was_seen_counts() -> None:
    assert seconds_run(attempt(started_at=10.0, progress_at=14.0, outcome=Outcome.FAULT), until=99.0) == 4.0
    assert seconds_run(attempt(started_at=10.0, outcome=Outcome.FAULT), until=99.0) == 0.0


def test_attempts_side_by_side_count_once_in_time_and_each_in_gpu_seconds() -> None:
    spans = [(0.0, 10.0), (20.0, 30.0), (22.0, 25.0), (28.0, 40.0)]
    runs = [attempt(n, started_at=start, ended_at=end, gpus=GPUS) for n, (start, end) in enumerate(spans, start=1)]
    assert busy_seconds(runs, until=99.0) == 30.0
    assert [gpu_seconds(run, until=99.0) for run in runs] == [20.0, 20.0, 6.0, 24.0]
    assert gpu_seconds(attempt(started_at=0.0, ended_at=10.0), until=99.0) == 0.0
    assert busy_seconds([attempt()], until=99.0) == 0.0


@pytest.mark.parametrize(("furthest", "resumed", "made"), [(520, 500, 20), (520, None, 520), (None, 500, 0), (3, 9, 0)])
def test_steps_made_are_those_after_the_point_of_resuming(furthest: int | None, resumed: int | None, made: int) -> None:
    assert steps_made(attempt(furthest_step=furthest, resumed_step=resumed)) == made
