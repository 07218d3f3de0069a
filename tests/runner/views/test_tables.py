"""Tests the texts for a person: they are complete, and no control code of a log gets into them."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Callable
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
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.store import Event, Store
from rung.runner.views.history import history
from rung.runner.views.queue import queue, queue_table
from rung.runner.views.tables import event_line, event_text, history_text, table

Rung = Callable[..., Any]
BIN = Path(sys.executable).parent
EVIL = "\x1b]0;owned\x07\x1b[31mred\x1b[0m\x9b2J\r\n\x00\u202eevil\u2028end"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028]")


def evil_store(path: Path) -> Store:
    """Return a store in which every text came from a hostile log."""
    store = Store(path)
    # A job file cannot have such a name; a store from elsewhere may.
    spec = JobSpec(name="plain", run=("x",)).model_copy(update={"name": "na\u202eme"})
    fault = Fault(FaultKind.NAN_LOSS, EVIL, step=7)
    with store.transaction():
        job = store.add_job(spec, Path("/"), at=1.0)
        store.put_attempt(
            Attempt(
                job.id, 1, "here", Knobs(lr=0.1), "lower_lr", EVIL, skipped=(("fp32", EVIL),), undone=(("fp32", EVIL),),
                resumed_from=EVIL, effective={"lr": EVIL}, metrics={EVIL: 1.0}, fault=fault, outcome=Outcome.FAULT,
                furthest_step=9, ended_at=2.0,
            )
        )  # fmt: skip
        store.put_attempt(Attempt(job.id, 2, "here", Knobs(lr=0.1), None, "again", progress_at=4.0))
        store.move(job.id, JobState.LAUNCHING, reason="its turn", at=1.5)
        store.move(job.id, JobState.FAILED, reason=EVIL, at=3.0)
    return store


@pytest.mark.parametrize("diff", [False, True])
def test_no_control_code_of_a_log_reaches_a_history(tmp_path: Path, diff: bool) -> None:
    store = evil_store(tmp_path / "rung.db")
    data = history(store, store.find("na\u202eme"), HomePaths(tmp_path), 9.0)
    plain = click.unstyle(history_text(data, diff=diff))
    shown = history_text(data, diff=diff)
    assert not CONTROL.search(plain)
    assert "\x1b[2J" not in shown and "owned" not in shown and "\x1b]" not in shown
    assert "redevilend" in plain
    assert not CONTROL.search(click.unstyle(queue_table(queue(store, 9.0), 200, 9.0)))
    store.close()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("state", {"from": "A", "to": "B", "reason": EVIL}),
        ("fault", {"kind": "nan_loss", "evidence": EVIL, "step": 3}),
        ("fault", {"kind": "nan_loss", "evidence": EVIL, "step": None}),
        ("checkpoint", {"file": EVIL, "verdict": EVIL, "step": 1, "detail": EVIL}),
        ("started", {"argv": [EVIL, "b"]}),
        ("not_taken", {"lr": {"asked": 1, "effective": EVIL}}),
        ("decided", {"because": EVIL}),
        ("stopped", {"diagnosis": EVIL, "skipped": {}}),
        ("something else", {EVIL: EVIL}),
    ],
)
def test_no_control_code_of_a_log_reaches_an_event_line(kind: str, data: dict[str, Any]) -> None:
    event = Event(1, 0.0, "a-1", 2, kind, data)
    assert not CONTROL.search(event_line(event, "here"))
    assert "end" in event_text(event)
    assert f" job=a-1 attempt=2 host=here {kind}: " in event_line(event, "here")


@given(st.lists(st.lists(st.text(max_size=15) | st.none() | st.floats(), min_size=3, max_size=3), max_size=4))
def test_a_table_is_one_clean_line_for_each_row(rows: list[list[Any]]) -> None:
    lines = click.unstyle(table(("A", "B", "C"), rows, 40)).split("\n")
    assert len(lines) == len(rows) + 1
    assert not any(CONTROL.search(line) for line in lines)


def test_a_table_is_cut_to_the_terminal_but_not_in_a_pipe() -> None:
    rows = [["id", "x" * 300]]
    assert max(len(line) for line in click.unstyle(table(("ID", "REASON"), rows, 60)).splitlines()) == 60
    assert "x" * 300 in table(("ID", "REASON"), rows, 10_000)


def test_the_diff_shows_all_of_an_attempt(tmp_path: Path) -> None:
    store = Store(tmp_path / "rung.db")
    with store.transaction():
        job = store.add_job(JobSpec(name="a", run=("x",)), Path("/"), at=1.0)
        first = Attempt(job.id, 1, "alpha", Knobs(lr=1e-3, clip=5.0), None, "as submitted", by_person=True)
        fault = Fault(FaultKind.NAN_LOSS, "step 520: loss nan", step=520)
        store.put_attempt(replace(first, furthest_step=520, fault=fault, outcome=Outcome.FAULT, ended_at=1.0))
        store.put_attempt(
            Attempt(
                job.id, 2, "beta", Knobs(lr=1e-3, clip=1.0), "raise_clip", "gradients jumped",
                skipped=(("lower_lr", "no drift"),), undone=(("fp32", "did nothing"),), resumed_from="step_500.pt",
                resumed_step=500, effective={"lr": 1e-3, "clip": None}, furthest_step=900, loss=1.25,
                verdict=Verdict.RECOVERED, outcome=Outcome.SUCCEEDED, metrics={"val_loss": 1.5}, progress_at=3.0,
            )
        )  # fmt: skip
    text = click.unstyle(history_text(history(store, store.job(job.id), HomePaths(tmp_path), 9.0), diff=True))
    for part in (
        "attempt 1 on alpha", "as submitted", "fault       nan_loss at step 520", "step 520: loss nan",
        "cost        520 steps made, 20 lost (2 s), no GPU leased", "began       not started\n",
        "asked 1            effective off", "attempt 2 on beta: raise_clip", "because     gradients jumped",
        "changed     clip: 5 -> 1", "asked 0.001", "effective 0.001", "skipped     lower_lr: no drift",
        "taken back  fp32: did nothing", "did not take  clip: asked 1, effective off",
        "checkpoint  step_500.pt, resumed at step 500", "checkpoint  none: from scratch",
        "reached     step 900, loss 1.25", "measured    val_loss 1.5", "outcome     succeeded, recovered",
    ):  # fmt: skip
        assert part in text, (part, text)
    store.close()


def test_piped_output_has_no_colours(home: Path, rung: Rung) -> None:
    home.mkdir()
    evil_store(home / "rung.db").close()
    for args in (["queue"], ["history", "--diff", "na-me-1"], ["history", "nobody"], ["--help"]):
        ran = rung(*args)
        assert ran.out + ran.err
        assert not CONTROL.search(ran.out + ran.err)


def on_a_terminal(*args: str, **env: str) -> str:
    """Return what a command writes to a terminal."""
    ours, theirs = pty.openpty()
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen([str(BIN / "rung"), *args], **streams, env={**os.environ, **env}) as process:
        os.close(theirs)
        output = b""
        while select.select([ours], [], [], 30)[0]:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # Linux raises this when the other side is closed
                break
            output += chunk
    os.close(ours)
    assert process.returncode is not None
    return output.decode()


def test_a_terminal_gets_colours_and_no_control_codes_of_the_log(home: Path) -> None:
    home.mkdir()
    evil_store(home / "rung.db").close()
    evil = "x\x1b]0;owned\x07\x1b[2J"
    for args in (["queue"], ["history", "--diff", "na-me-1"], ["history", evil], ["launch", evil], ["explain", evil]):
        output = on_a_terminal(*args)
        assert "\x1b[3" in output
        left = re.sub(r"\x1b\[[0-9;]*m", "", output).replace("\r\n", "\n")
        assert not CONTROL.search(left), args


def test_no_color_turns_the_colours_off_on_a_terminal_too(home: Path) -> None:
    home.mkdir()
    evil_store(home / "rung.db").close()
    for args in (["queue"], ["history", "na-me-1"], ["history", "nobody"]):
        assert "\x1b[" in on_a_terminal(*args, NO_COLOR="")
        output = on_a_terminal(*args, NO_COLOR="1")
        assert output.strip() and "\x1b" not in output
