"""Tests how long a run may be silent, by its own pace."""

from __future__ import annotations

import pytest

from rung.recovery.monitors.stalled import PACE_FACTOR, PACE_GAPS, SHORTEST_LIMIT, Pace, allowed_silence, stall_text


def pace_of(*gaps: float) -> Pace:
    pace = Pace()
    for gap in gaps:
        pace = pace.after(gap)
    return pace


def test_a_run_without_a_pace_has_no_limit() -> None:
    assert allowed_silence("auto", Pace(), 0) is None
    assert allowed_silence("auto", pace_of(*[1.0] * (PACE_GAPS - 1)), 0) is None
    assert allowed_silence("auto", pace_of(*[1.0] * PACE_GAPS), 0) is not None


def test_a_fast_run_may_be_silent_for_the_shortest_limit() -> None:
    assert allowed_silence("auto", pace_of(*[0.2] * 1000), 0) == SHORTEST_LIMIT


def test_a_slow_log_is_not_a_stall() -> None:
    """A log that says something once an hour gets ten hours."""
    assert allowed_silence("auto", pace_of(*[3600.0] * PACE_GAPS), 0) == PACE_FACTOR * 3600


def test_a_gap_that_came_once_raises_the_pace() -> None:
    steps, evaluation = [1.0] * 500, 600.0
    assert allowed_silence("auto", pace_of(*steps, evaluation, *steps), 0) == PACE_FACTOR * evaluation


def test_the_limit_doubles_with_every_stall_before() -> None:
    assert [allowed_silence("auto", pace_of(*[1.0] * 50), n) for n in range(3)] == [1800.0, 3600.0, 7200.0]


@pytest.mark.parametrize("pace", [Pace(), pace_of(*[900.0] * 50)])
def test_a_limit_of_the_job_file_counts_as_it_is(pace: Pace) -> None:
    assert allowed_silence(90.0, pace, 3) == 90.0
    assert allowed_silence(None, pace, 0) is None


def test_a_stored_pace_is_a_pace() -> None:
    assert not Pace.stored(None).is_shown
    assert Pace.stored(400.0).is_shown and Pace.stored(400.0).longest == 400.0


@pytest.mark.parametrize(
    ("silent", "setting", "text"),
    [
        (1801.0, "auto", "no sign of life for 30 min, its longest gap before was 90 s"),
        (9000.0, 7200.0, "no sign of life for 2.5 h, longer than recovery.stalled (2.0 h)"),
        (15.2, 15.0, "no sign of life for 15.2 s, longer than recovery.stalled (15 s)"),
    ],
)
def test_the_evidence_says_how_long_and_compared_with_what(silent: float, setting: float | str, text: str) -> None:
    assert stall_text(silent, setting, pace_of(90.0)) == text
