"""Tests `rung ladder`: the table of what each rung did, as text and as JSON."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.cli.main import cli
from rung.runner.state.store import Store

SUBMITTED = Knobs(lr=1e-3)
TITAN = Gpu("NVIDIA TITAN RTX", (7, 5))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUNG_HOME", str(tmp_path))
    # Without nvidia-smi in PATH, runs on this machine are listed as CPU.
    monkeypatch.setenv("PATH", str(Path(os.devnull).parent))
    return tmp_path


def run_ladder(*args: str) -> str:
    done = CliRunner().invoke(cli, ["ladder", *args], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def store_jobs(home: Path, *jobs: list[Attempt]) -> None:
    store = Store(home / "rung.db")
    with store.transaction():
        for number, attempts in enumerate(jobs):
            spec = JobSpec.model_validate({"name": f"job{number}", "run": "x {lr}", "knobs": {"lr": 1e-3}})
            job = store.add_job(spec, home, at=1.0)
            for attempt in attempts:
                store.put_attempt(replace(attempt, job_id=job.id))
    store.close()


def cured(rung: str, knobs: Knobs, gpus: tuple[Gpu, ...] = ()) -> list[Attempt]:
    nan = Fault(FaultKind.NAN_LOSS, "loss nan", step=100)
    first = Attempt(
        "", 1, "here", SUBMITTED, None, "as submitted", by_person=True, gpus=gpus, furthest_step=100, fault=nan
    )
    second = Attempt("", 2, "here", knobs, rung, "because", gpus=gpus, resumed_step=60, outcome=Outcome.SUCCEEDED)
    return [first, second]


def test_without_a_store_or_a_tried_rung_a_message_is_shown(home: Path) -> None:
    assert "no rung has been tried" in run_ladder() and json.loads(run_ladder("--json")) == []
    assert not (home / "rung.db").exists()
    store_jobs(home, [])
    assert "no rung has been tried" in run_ladder()


def test_the_table_counts_over_all_jobs_of_the_store(home: Path) -> None:
    lower = cured("lower_lr", SUBMITTED.but(lr=1e-4))
    store_jobs(home, lower, lower, cured("raise_clip", SUBMITTED.but(clip=1.0), (TITAN,)))
    head, *rows = [line.split() for line in run_ladder().splitlines()]
    assert head == ["FAULT", "GPU", "RUNG", "TRIES", "TOOK", "SURVIVED", "LOST"]
    assert rows == [
        ["nan_loss", "TITANRTX", "raise_clip", "1", "1", "1", "40"],
        ["nan_loss", "cpu", "lower_lr", "2", "2", "2", "40"],
    ]
    assert json.loads(run_ladder("--json"))[1] == {
        "fault": "nan_loss", "gpu": "cpu", "rung": "lower_lr", "tries": 2, "took": 2, "survived": 2, "lost": 40,
    }  # fmt: skip
