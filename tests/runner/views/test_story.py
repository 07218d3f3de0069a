"""Tests the story of a job: every event that matters is told once, in few words, and fits the terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.job import Attempt
from rung.jobs.model.engine import DOCKER
from rung.jobs.model.event import EventKind
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.trial import Candidate, Trial
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.decide.wording import describe_fault
from rung.runner.state.store import Event, Store
from rung.runner.views.live_line import LiveLine
from rung.runner.views.story import MOST_ROWS, StoryLine, Told, duration, lay_out, tell
from rung.runner.views.story_follower import StoryFollower, StoryPrinter

FIRST = Attempt("a-1", 1, "localhost", Knobs(lr=1.0), None, "as submitted", by_person=True)
SECOND = replace(
    FIRST, number=2, rung="lower_lr", by_person=False, resumed_from="step_100.pt", planned_step=100, resumed_step=100
)
NAN = Fault(FaultKind.NAN_LOSS, "rung| step step=126 loss=nan lr=0.05 skipped=1", step=126)
DRIFT = Fault(FaultKind.DIVERGENCE, "rung| step step=9 loss=8.0", step=9, note="loss about 8, 3 when the log began")
EVIL = "\x1b]0;owned\x07\x1b[31mred\x1b[0m\x9b2J\r\n\x00\u202eevil\u2028end"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028]")


def event(kind: str, attempt: int | None = None, /, **data: Any) -> Event:
    return Event(1, 60.0, "a-1", attempt, kind, data)


def fault_event(fault: Fault, attempt: int = 1) -> Event:
    return event(EventKind.FAULT, attempt, **fault.to_dict())


def state_event(to: str, reason: str) -> Event:
    return event(EventKind.STATE, None, **{"from": "X"}, to=to, reason=reason)


def story(events: Sequence[Event], *attempts: Attempt) -> list[tuple[str, str]]:
    """Return the labels and texts of the lines that these events make."""
    told, found = Told(), []
    for each in events:
        told, line = tell(told, each, {attempt.number: attempt for attempt in attempts})
        found += [(line.label, line.text)] if line is not None else []
    return found


def test_a_recovery_is_told_from_its_launch_to_its_result() -> None:
    events = [
        event(EventKind.SUBMITTED, name="a"),
        event(EventKind.DECIDED, 1, because="as submitted"),
        event(EventKind.STARTED, 1, argv=["python", "train.py", "a b"]),
        state_event("RUNNING", "step 1 was seen"),
        fault_event(NAN),
        event(EventKind.ENDED, 1, outcome="fault"),
        state_event("RECOVERING", "nan_loss: a line"),
        event(EventKind.CHECKPOINT, 1, file="step_100.pt", verdict="healthy", step=100, detail=""),
        event(EventKind.DECIDED, 2, because=f"{describe_fault(NAN)}: it jumped: lower_lr (lr 1.0 -> 0.1)"),
        event(EventKind.STARTED, 2, argv=["python", "train.py"]),
        state_event("RUNNING", "step 101 was seen"),
        event(EventKind.RECOVERED, 2, because="the loss fell"),
        state_event("SUCCEEDED", "finished with val_loss 0.1; recovered: the loss fell"),
    ]
    assert story(events, FIRST, SECOND) == [
        ("launched", "on localhost: python train.py 'a b'"),
        ("fault", "nan_loss at step 126: loss=nan lr=0.05 skipped=1"),
        ("decided", "it jumped: lower_lr (lr 1.0 -> 0.1)"),
        ("resumed", "at step 100: step 101 was seen"),
        ("recovered", "the loss fell"),
        ("SUCCEEDED", "finished with val_loss 0.1; recovered"),
    ]


def test_trials_are_told_with_their_table_and_without_the_words_that_came_before() -> None:
    candidates = (Candidate("lower_lr", Knobs(lr=0.1), 0.1), Candidate("lower_lr", Knobs(lr=0.01), 0.01))
    trial = Trial(1, 0, candidates, start=0, fault_step=9, until=104, bound=500)
    second = replace(FIRST, number=2, by_person=False, trial=trial)
    won = "lower_lr x0.1 won the trials with a loss of 1.6 at step 104 (lower_lr x0.01: 2.2)"
    row = {"rung": "lower_lr x0.1", "steps": "0-104", "loss": 1.6, "ms": 20.0, "verdict": "won"}
    events = [
        fault_event(DRIFT),
        event(EventKind.DECIDED, 2, because=f"{describe_fault(DRIFT)}: trial 1, of at most 4: lower_lr x0.1"),
        state_event("RUNNING", "step 1 was seen"),
        fault_event(NAN, attempt=2),
        event(EventKind.TRIALS, 2, because=won, table=[row]),
        event(EventKind.DECIDED, 3, because=f"{describe_fault(DRIFT)}: {won}; it goes on from step_100.pt"),
    ]
    assert story(events, FIRST, second, replace(SECOND, number=3)) == [
        ("fault", "divergence at step 9 (loss about 8, 3 when the log began)"),
        ("trial", "1, of at most 4: lower_lr x0.1"),
        ("fault", "in the trial of lower_lr x0.1: nan_loss at step 126: loss=nan lr=0.05 skipped=1"),
        ("trials", "lower_lr x0.1 won the trials with a loss of 1.6 at step 104"),
        ("decided", "it goes on from step_100.pt"),
    ]
    _, line = tell(Told(), events[4], {})
    assert line is not None
    shown = click.unstyle(lay_out(line, 0.0, 100)).splitlines()
    assert [text.split() for text in shown[1:]] == [
        ["RUNG", "STEPS", "LOSS", "MS", "A", "STEP", "VERDICT"],
        ["lower_lr", "x0.1", "0-104", "1.6", "20", "won"],
    ]


@pytest.mark.parametrize(
    ("attempt", "told"),
    [
        (FIRST, []),
        (SECOND, [("resumed", "at step 100: step 7 was seen")]),
        (replace(SECOND, resumed_step=None), [("resumed", "with step_100.pt: step 7 was seen")]),
        (replace(SECOND, resumed_from=None, resumed_step=0), [("running", "from scratch: step 7 was seen")]),
        (replace(SECOND, engine=DOCKER, host="titan"), [("resumed", "at step 100 on titan: step 7 was seen")]),
    ],
)
def test_only_the_words_of_the_job_prove_where_it_resumed(attempt: Attempt, told: list[tuple[str, str]]) -> None:
    events = [event(EventKind.ENDED, attempt.number, outcome="fault"), state_event("RUNNING", "step 7 was seen")]
    assert story(events, attempt) == told


def test_a_job_that_begins_at_a_checkpoint_of_another_names_it() -> None:
    start = {"job": "other-1", "step": 40, "file": "step_40.pt"}
    assert story([event(EventKind.SUBMITTED, name="a", **{"from": start})]) == [("begins", "at step 40 of other-1")]
    assert story([event(EventKind.SUBMITTED, name="a")]) == []


def test_what_does_not_matter_is_not_told() -> None:
    healthy = {"file": "a.pt", "verdict": "healthy", "step": 1, "detail": ""}
    events = [
        event(EventKind.MIRRORED, 1, because="copied"),
        event(EventKind.CHECKPOINT, 1, **healthy),
        event(EventKind.SET_ASIDE, 1, because="newer"),
        event(EventKind.STOPPED, 1, diagnosis="no rung is left"),
        event("of a newer Rung", 1, because="unknown"),
        event(EventKind.CHECKPOINT, 1, **{**healthy, "verdict": "poisoned"}),
        event(EventKind.UNREACHABLE, 1, because="titan does not answer"),
        event(EventKind.UNREACHABLE, 1, because="titan does not answer"),
        state_event("FAILED", "no rung is left"),
    ]
    assert story(events, FIRST) == [
        ("checkpoint", "a.pt is poisoned (step 1)"),
        ("unreachable", "titan does not answer"),
        ("FAILED", "no rung is left"),
    ]


def test_a_line_of_a_traceback_is_shown_beside_a_note_and_a_record_is_not() -> None:
    noted = replace(DRIFT, evidence="RuntimeError: overflow")
    assert story([fault_event(noted)]) == [("fault", f"{describe_fault(noted)}: RuntimeError: overflow")]
    assert story([fault_event(DRIFT)]) == [("fault", describe_fault(DRIFT))]


def test_the_result_gives_a_reason_that_was_not_said_before() -> None:
    result = state_event("SUCCEEDED", "finished with val_loss 0.1; recovered: it met its success")
    assert story([result]) == [("SUCCEEDED", "finished with val_loss 0.1; recovered: it met its success")]
    recovered = event(EventKind.RECOVERED, 2, because="the loss fell")
    assert story([recovered, result])[-1] == ("SUCCEEDED", "finished with val_loss 0.1; recovered")
    survived = event(EventKind.SURVIVED, 2, because="it got past the fault")
    ended = state_event("SUCCEEDED", "finished; survived: it got past the fault")
    assert story([survived, ended])[-1] == ("SUCCEEDED", "finished; survived")
    assert story([survived, result])[-1] == ("SUCCEEDED", "finished with val_loss 0.1; recovered: it met its success")


def test_a_retry_says_what_a_person_changed() -> None:
    assert story([event(EventKind.RETRIED, knobs={"lr": [1.0, 0.1]})]) == [("retried", "with lr 1.0 -> 0.1")]
    changed = event(EventKind.RETRIED, knobs={"lr": [None, 0.1], "clip": [1.0, None]})
    assert story([changed]) == [("retried", "with lr not set -> 0.1, clip 1.0 -> off")]
    assert story([event(EventKind.RETRIED, knobs={})]) == [("retried", "with the same knobs")]


# The layout


@given(st.text(max_size=2000), st.integers(60, 200), st.sampled_from(["fault", "waiting for host"]))
def test_every_row_fits_the_width_and_has_no_control_code(text: str, width: int, label: str) -> None:
    shown = click.unstyle(lay_out(StoryLine(60.0, label, text + EVIL, "red"), 0.0, width))
    assert not CONTROL.search(shown)
    assert all(len(row) <= width for row in shown.split("\n"))
    assert len(shown.split("\n")) <= MOST_ROWS
    assert shown.startswith(f"  1:00  {label} ")


def test_a_change_of_a_knob_is_not_broken_between_two_rows() -> None:
    for width in range(60, 100):
        shown = lay_out(StoryLine(0.0, "decided", "x" * 30 + " lower_lr (lr 2.0 -> 0.2) and more " * 3), 0.0, width)
        assert shown.count("2.0 -> 0.2") == 3, shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0:00"), (61, "1:01"), (3600, "1:00:00"), (-5, "0:00"), (1e300, "?:??"), (float("nan"), "?:??")],
)
def test_a_time_is_short_whatever_a_host_reports(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_job_that_was_tried_again_begins_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path / "rung.db")
    with store.transaction():
        job = store.add_job(JobSpec(name="a", run=("x",)), tmp_path, at=1.0)
        store.add_event(job.id, 1, EventKind.UNREACHABLE, {"because": "an old tale"}, at=2.0)
        store.add_event(job.id, None, EventKind.RETRIED, {"knobs": {}}, at=100.0)
        store.add_event(job.id, 1, EventKind.UNREACHABLE, {"because": "a new one"}, at=130.0)
    follower = StoryFollower(store, HomePaths(tmp_path), job.id, lambda: 130.0, StoryPrinter())
    follower.show_new()
    follower.show_new()
    shown = [line.split(maxsplit=2)[:2] for line in capsys.readouterr().out.splitlines()]
    assert shown == [["0:00", "retried"], ["0:30", "unreachable"]]
    store.close()


def test_a_line_of_the_story_leaves_nothing_of_the_live_line(capsys: pytest.CaptureFixture[str]) -> None:
    printer = StoryPrinter(LiveLine(sys.stdout), lambda: 80)
    printer.show(event(EventKind.SUBMITTED, name="a"), [])
    printer.show_live("attempt 1: a long text", 61.0)
    printer.show(event(EventKind.LEVEL, 1, because="x"), [])
    live = "  0:01  attempt 1: a long text"
    assert capsys.readouterr().out == f"\r{live}\r\r{' ' * len(live)}\r  0:00  level       x\n"
