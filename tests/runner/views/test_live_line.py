"""Tests the live line: step, loss, speed and the time left, as far as they are known, in one row of a terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt, Job
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.model.trial import Candidate, Trial
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.views.live_line import LEAST_READINGS, LiveLine, Pace, describe_now, has_live_line

SPEC = JobSpec(name="a", run=("x",))
JOB = Job("a-1", SPEC, JobState.RUNNING, "step 1 was seen", 0.0, 0.0, Knobs())
FIRST = Attempt("a-1", 1, "titan", Knobs(), None, "as submitted", furthest_step=200, loss=0.51234)
LONG = replace(FIRST, total_steps=800)
TRIAL = Trial(1, 0, (Candidate("lower_lr", Knobs(), 0.1),), start=0, fault_step=9, until=300, bound=500)


@pytest.mark.parametrize(
    ("attempt", "speed", "text"),
    [
        (FIRST, None, "attempt 1: step 200, loss 0.5123"),
        (FIRST, 12.345, "attempt 1: step 200, loss 0.5123, 12.3 steps/s"),
        (LONG, None, "attempt 1: step 200 of 800, loss 0.5123"),
        (LONG, 10.0, "attempt 1: step 200 of 800, loss 0.5123, 10 steps/s, about 1:00 left"),
        (LONG, 0.1, "attempt 1: step 200 of 800, loss 0.5123, 10 s a step, about 1:40:00 left"),
        (replace(FIRST, total_steps=200), 10.0, "attempt 1: step 200 of 200, loss 0.5123, 10 steps/s"),
        (replace(FIRST, loss=float("nan")), None, "attempt 1: step 200, loss nan"),
        (replace(FIRST, furthest_step=None, loss=None), None, "attempt 1"),
        (
            replace(FIRST, trial=TRIAL, loss=None),
            50.0,
            "trial of lower_lr x0.1: step 200 of 300, 50 steps/s, about 0:02 left",
        ),
        (replace(FIRST, unreachable_since=5.0), 10.0, "titan does not answer"),
    ],
)
def test_a_running_job_shows_what_is_known(attempt: Attempt, speed: float | None, text: str) -> None:
    assert describe_now(JOB, [attempt], speed, 0.0) == text


def test_the_length_of_the_run_is_known_from_an_earlier_attempt() -> None:
    second = replace(FIRST, number=2, furthest_step=300)
    text = describe_now(JOB, [replace(FIRST, total_steps=800), second], None, 0.0)
    assert text == "attempt 2: step 300 of 800, loss 0.5123"


@pytest.mark.parametrize(
    ("fields", "attempts", "text"),
    [
        ({"state": JobState.QUEUED, "reason": "waits for a \x1b[2JGPU"}, [], "waits for a GPU"),
        ({"state": JobState.LAUNCHING}, [FIRST], "attempt 1: launching"),
        ({"state": JobState.LAUNCHING}, [replace(FIRST, not_before=30.0)], "waiting 0:20 before attempt 1"),
        ({"state": JobState.LAUNCHING}, [replace(FIRST, not_before=9.0)], "attempt 1: launching"),
        ({"state": JobState.RECOVERING}, [FIRST], "attempt 1: recovering"),
    ],
)
def test_a_job_that_does_not_run_says_what_it_waits_for(fields: Any, attempts: list[Attempt], text: str) -> None:
    assert describe_now(replace(JOB, **fields), attempts, None, 10.0) == text


def test_the_speed_is_that_of_the_last_seconds_and_of_one_attempt() -> None:
    pace = Pace()
    for second in range(60):
        pace.see(replace(FIRST, furthest_step=second * 100), float(second))
    for second in range(60, 90):
        pace.see(replace(FIRST, furthest_step=6000 + (second - 60) * 10), float(second))
    assert pace.speed == pytest.approx(10)
    pace.see(replace(FIRST, number=2, furthest_step=9000), 90.0)
    assert pace.speed is None
    pace.see(replace(FIRST, number=2, furthest_step=9000), 95.0)
    assert pace.speed is None


def test_a_slow_run_has_a_speed_too() -> None:
    pace = Pace()
    for step in range(LEAST_READINGS + 3):
        pace.see(replace(FIRST, furthest_step=step), step * 60.0)
    assert pace.speed == pytest.approx(1 / 60)


def test_the_line_replaces_itself_fits_the_width_and_leaves_nothing() -> None:
    out = io.StringIO()
    line = LiveLine(out)
    line.show("a long text", 80)
    line.show("a long text", 80)
    line.show("short", 80)
    line.show("far too wide", 8)
    line.clear()
    line.clear()
    assert out.getvalue() == "\ra long text\r\rshort      \r\rfar too\r\r       \r"


def test_only_a_terminal_that_can_write_over_a_line_has_one() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert has_live_line(Terminal(), {"TERM": "xterm"})
    assert not has_live_line(Terminal(), {"TERM": "dumb"})
    assert not has_live_line(io.StringIO(), {"TERM": "xterm"})
