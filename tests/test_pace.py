"""Tests that a wait is longer on a slow machine, and that a condition which is never true still fails."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import pace


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Stop the clock of the waits, and return a function that moves it."""
    now = [0.0]
    monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])

    def pass_by(seconds: float) -> None:
        now[0] += seconds

    return pass_by


def slow(monkeypatch: pytest.MonkeyPatch, *times: float) -> None:
    measured = itertools.chain(times, itertools.repeat(times[-1]))
    monkeypatch.setattr(pace, "slowness", lambda: next(measured))


def test_the_slowness_of_this_machine_is_at_least_1() -> None:
    assert pace.slowness() >= 1.0


def test_nothing_is_measured_before_the_usual_time_is_over(
    monkeypatch: pytest.MonkeyPatch, clock: Callable[[float], None]
) -> None:
    monkeypatch.setattr(pace, "slowness", lambda: pytest.fail("measured too early"))
    patience = pace.Patience(60)
    clock(59)
    assert not patience.is_over()


def test_a_slow_machine_waits_as_many_times_longer(
    monkeypatch: pytest.MonkeyPatch, clock: Callable[[float], None]
) -> None:
    slow(monkeypatch, 3.0)
    patience = pace.Patience(60)
    clock(179)
    assert not patience.is_over()
    clock(1)
    assert patience.is_over()


def test_a_machine_that_becomes_slower_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, clock: Callable[[float], None]
) -> None:
    slow(monkeypatch, 2.0, 5.0)
    patience = pace.Patience(60)
    assert [patience.is_over() for _ in range(4) if clock(70) is None] == [False, False, False, False]
    clock(20)
    assert patience.is_over()


def test_progress_restarts_the_wait_a_limited_number_of_times(
    monkeypatch: pytest.MonkeyPatch, clock: Callable[[float], None]
) -> None:
    slow(monkeypatch, 1.0)
    patience = pace.Patience(60, itertools.count().__next__)
    waits = 0
    while not patience.is_over():
        clock(60)
        waits += 1
    assert waits in (pace.MOST_WAITS, pace.MOST_WAITS + 1)


def test_a_condition_that_is_never_true_fails_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    slow(monkeypatch, 1.0)
    with pytest.raises(AssertionError, match="a condition"):
        pace.until(lambda: False, 0.05, "a condition")


def test_a_condition_that_becomes_true_during_the_measurement_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    came = [False]

    def measure() -> float:
        came[0] = True
        return 1.0

    monkeypatch.setattr(pace, "slowness", measure)
    assert pace.until(lambda: came[0], 0.02)


def test_a_program_that_runs_too_long_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    slow(monkeypatch, 1.0)
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        pace.run([sys.executable, "-c", "import time; time.sleep(600)"], usual=0.1)
    assert time.monotonic() - begun < 300


def test_input_and_output_of_a_program_are_complete_after_many_timeouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "ASK_EVERY", 0.01)
    program = "import sys, time; data = sys.stdin.read(); time.sleep(0.2); sys.stdout.write(data); sys.exit(3)"
    text = "words\n" * 100_000
    done = pace.run([sys.executable, "-c", program], usual=60, input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout == text, done.stderr) == (3, True, "")
    with pytest.raises(subprocess.CalledProcessError):
        pace.run([sys.executable, "-c", "raise SystemExit(1)"], usual=60, check=True)


def test_a_file_that_is_written_is_progress(tmp_path: Path) -> None:
    before = pace.newest_change(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "log").write_text("step 1")
    assert pace.newest_change(tmp_path) > before
