"""Tests the tables for spreadsheets: stable columns, RFC 4180, and no formula from hostile text."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.store import Store
from rung.runner.views.csv_text import ATTEMPTS, QUEUE, _cell

HOSTILE = '=HYPERLINK("http://x","a,\x1b[31mb")'
# As they were when they were promised: what comes later is appended.
FIRST_QUEUE = (
    "id,name,state,reason,host,gpus,image,priority,step,loss,recoveries,attempt,verdict,not_resumed,run_seconds,"
    "submitted,group,settings"
)
FIRST_ATTEMPTS = (
    "job,name,attempt,host,gpus,image,rung,trial,by_person,because,after_fault,resumed_from,resumed_step,first_step,"
    "furthest_step,total_steps,steps_made,steps_lost,fault,fault_step,evidence,outcome,exit_code,verdict,verdict_why,"
    "loss,started,ended,seconds,seconds_lost,gpu_seconds,log,asked_lr,asked_clip,asked_growth_interval,asked_precision,"
    "asked_batch,asked_accumulation,asked_params,asked_skip,asked_constants,asked_fp32_modules,asked_matmul,gpus_asked"
)


@pytest.fixture
def job(home: Path) -> str:
    """Return a job whose name, log and checkpoint are written by somebody hostile."""
    home.mkdir(mode=0o700)
    store = Store(home / "rung.db")
    with store.transaction():
        job = store.add_job(JobSpec(name="=1+1", run=("x",)), home, at=1.0)
        store.move(job.id, JobState.LAUNCHING, reason=f"@SUM(A1)\n{HOSTILE}", at=2.0)
        fault = Fault(FaultKind.NAN_LOSS, HOSTILE, step=-5)
        first = Attempt(job.id, 1, "here", Knobs(lr=-0.5), None, "-2+3", by_person=True, loss=float("-inf"))
        store.put_attempt(replace(first, fault=fault, outcome=Outcome.FAULT, furthest_step=20))
        store.put_attempt(replace(first, number=2, by_person=False, rung="fp32", resumed_from="+cmd.pt", fault=None))
    store.close()
    return job.id


def rows(text: str) -> list[dict[str, str]]:
    assert text.count("\r\n") == text.count("\n") and text.endswith("\r\n")
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def test_the_history_has_a_line_for_every_attempt(job: str, rung: Callable[..., Any]) -> None:
    done = rung("history", job, "--csv")
    first, second = rows(done.out)
    assert tuple(first) == ATTEMPTS
    assert (first["job"], first["attempt"], first["by_person"], first["fault"]) == (job, "1", "true", "nan_loss")
    assert (second["rung"], second["by_person"], second["fault"]) == ("fp32", "false", "")
    # Numbers are no formulas, however they begin.
    assert (first["fault_step"], first["asked_lr"], first["loss"]) == ("-5", "-0.5", "-inf")


def test_no_cell_of_hostile_text_is_a_formula(job: str, rung: Callable[..., Any]) -> None:
    first, second = rows(rung("history", job, "--csv").out)
    assert first["evidence"] == '\'=HYPERLINK("http://x","a,b")'
    assert (first["name"], first["because"], second["resumed_from"]) == ("'=1+1", "'-2+3", "'+cmd.pt")
    (row,) = rows(rung("queue", "--csv").out)
    assert row["name"] == "'=1+1" and row["reason"].startswith("'@SUM")


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", " =1", "\t=1", "\r=1", "\x1b[0m=1"])
def test_whatever_hides_before_a_formula_does_not_help(text: str) -> None:
    assert _cell(text).startswith("'")


def test_the_queue_has_a_line_for_every_job_and_takes_its_filters(job: str, rung: Callable[..., Any]) -> None:
    (row,) = rows(rung("queue", "--csv").out)
    assert tuple(row) == QUEUE and (row["id"], row["recoveries"], row["settings"]) == (job, "1", "")
    assert rows(rung("queue", "--csv", "--state", "failed").out) == []


def test_columns_stay_in_their_places() -> None:
    assert ",".join(QUEUE).startswith(FIRST_QUEUE)
    assert ",".join(ATTEMPTS).startswith(FIRST_ATTEMPTS)
