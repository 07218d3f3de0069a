"""Tests the timeline of `rung history`: curves on one scale, 80 columns, and no change for a pipe."""

from __future__ import annotations

import math
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.job import Attempt, Outcome, Verdict
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.model.trial import Candidate, Trial
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.store import Store
from rung.runner.views.history import history, with_series
from rung.runner.views.tables import summary_line
from rung.runner.views.timeline import BAD, BLOCKS, draw_curves, timeline

BIN = Path(sys.executable).parent


def test_curves_are_drawn_on_one_scale() -> None:
    assert draw_curves([[8.0, 4.0, 1.0], [1.0, 1.0], []], 5) == ["█▄▁", "▁▁", ""]
    assert draw_curves([[3.0, 3.0]], 5) == ["▅▅"], "as in a plot, a constant is in the middle"


def test_a_spike_does_not_flatten_the_rest() -> None:
    """A loss that falls from 4 to 1 is seen to fall also beside one of a thousand; with a zero there is no log."""
    assert draw_curves([[4.0, 2.0, 1.0, 1000.0]], 4) == ["▂▁▁█"]
    assert draw_curves([[4.0, 2.0, 1.0, 40.0]], 4) == ["▁▁▁█"]
    assert draw_curves([[4.0, 0.0, 1.0, 1000.0]], 4) == ["▁▁▁█"]


def test_a_long_curve_is_shortened_and_keeps_what_is_not_finite() -> None:
    (curve,) = draw_curves([[*range(100, 1, -1), math.nan]], 10)
    assert len(curve) == 10 and curve[0] == "█" and curve[-1] == BAD
    assert list(curve[:-1]) == sorted(curve[:-1], reverse=True)


@given(st.lists(st.lists(st.floats()), max_size=4), st.integers(1, 20))
def test_any_numbers_can_be_drawn(series: list[list[float]], width: int) -> None:
    for values, curve in zip(series, draw_curves(series, width), strict=True):
        assert len(curve) == min(width, len(values)) and set(curve) <= {*BLOCKS, BAD}


@pytest.fixture
def job(home: Path) -> str:
    """Return a job with a fault, a trial that lost, one that won, and an end; its texts are long and hostile."""
    home.mkdir(mode=0o700)
    store = Store(home / "rung.db")
    fault = Fault(FaultKind.NAN_LOSS, "loss: nan", step=520)
    trial = Trial(1, 0, (Candidate("lower_lr", Knobs(), 0.1),), 500, 520, 600, 99, verdict="scale_collapse at step 560")
    times = {"started_at": 1000.0, "ended_at": 4000.0}
    with store.transaction():
        job = store.add_job(JobSpec(name="a" * 40, run=("x",)), home, at=1.0)
        first = Attempt(job.id, 1, "here", Knobs(), None, "as submitted", by_person=True, first_step=1, **times)
        first = replace(first, furthest_step=520, fault=fault, outcome=Outcome.FAULT)
        resumed = {"resumed_from": "step_500.pt", "resumed_step": 500, "by_person": False, "fault": None}
        store.put_attempt(first)
        store.put_attempt(replace(first, number=2, trial=trial, furthest_step=560, outcome=Outcome.STOPPED, **resumed))
        last = replace(first, number=3, rung="lower_lr", furthest_step=123456789, verdict=Verdict.RECOVERED, **resumed)
        store.put_attempt(replace(last, outcome=Outcome.SUCCEEDED))
        for state in (JobState.LAUNCHING, JobState.RUNNING, JobState.SUCCEEDED):
            store.move(job.id, state, reason="finished \x1b]0;evil\x07" + "and so on " * 20, at=5000.0)
    store.close()
    for number, text in ((1, "8 4 nan"), (2, "4 4 4"), (3, "2 1 0.5")):
        log = HomePaths(home).attempt(job.id, number).log
        log.parent.mkdir(parents=True)
        log.write_text("".join(f"step {500 + i} loss {loss}\n" for i, loss in enumerate(text.split())))
    return job.id


def test_every_attempt_is_a_line_of_at_most_80_columns(job: str, home: Path) -> None:
    store = Store(home / "rung.db")
    data = with_series(history(store, store.find(job), HomePaths(home), 6000.0))
    store.close()
    lines = click.unstyle(timeline(data, summary_line(job, data["summary"]), 80)).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == f"{job}  SUCCEEDED" and lines[1].startswith("  3 attempts, 1 of them trials, ")
    assert "\x1b" not in lines[2] and lines[2].startswith("finished and so on")
    first, second, third = (re.sub(r" {2,}", "  ", line).split("  ") for line in lines[5:8])
    assert (first[0], first[2:5]) == ("1", ["50m00s", "1-520", f"█▄{BAD}"]) and first[5] == "✗ nan_loss at 520"
    assert second[3:] == ["↻500-560", "▄▄▄", "trial lower_lr x0.1 scale_collaps…"]
    assert third[3:] == ["↻500-123456789", "▂▁▁", "lower_lr ✓ recovered"]


def test_a_job_without_an_attempt_has_a_timeline_too(home: Path) -> None:
    home.mkdir()
    store = Store(home / "rung.db")
    with store.transaction():
        job = store.add_job(JobSpec(name="new", run=("x",)), home, at=1.0)
    data = with_series(history(store, job, HomePaths(home), 6000.0))
    store.close()
    assert timeline(data, "new-1  QUEUED", 80).endswith("no attempt yet")


def on_terminal(*words: str, **env: str) -> str:
    """Return what the command prints on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    settings = {**os.environ, "COLUMNS": "80", **env}
    with subprocess.Popen([BIN / "rung", *words], stdout=theirs, stderr=theirs, stdin=theirs, env=settings) as process:
        os.close(theirs)
        text = b""
        try:
            while chunk := os.read(ours, 65536):
                text += chunk
        except OSError:
            pass  # the other side has closed the terminal
        os.close(ours)
    assert process.returncode == 0, text
    return text.decode().replace("\r\n", "\n")


def test_only_a_terminal_gets_the_timeline(job: str, rung: Any) -> None:
    piped = rung("history", job).out
    assert "attempt 1 on here" in piped and "BEGAN" not in piped and BLOCKS[0] not in piped
    shown = on_terminal("history", job)
    assert "\x1b[31m" in shown and f"█▄{BAD}" in shown and "attempt 1 on here" not in shown
    assert "\x1b" not in on_terminal("history", job, NO_COLOR="1")
    assert on_terminal("history", job, "--full", NO_COLOR="1") == piped == rung("history", job, "--full").out
    assert on_terminal("history", job, "--diff", NO_COLOR="1") == rung("history", job, "--diff").out
