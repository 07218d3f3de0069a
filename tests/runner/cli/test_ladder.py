"""Tests `rung ladder`: what each rung did, and what was predicted of it, as text and as JSON."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rung.jobs.job import Attempt, Outcome, Verdict
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.trial import Candidate, Trial
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.ledger.row import Row
from rung.runner.cli.main import cli, main
from rung.runner.state.store import Store
from rung.runner.views.ledger_tables import ledger_text

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


def faulty(gpus: tuple[Gpu, ...] = (), day: int = 1) -> Attempt:
    nan = Fault(FaultKind.NAN_LOSS, "loss nan", step=100)
    first = Attempt("", 1, "here", SUBMITTED, None, "as submitted", by_person=True, gpus=gpus, ended_at=100.0 * day)
    return replace(first, furthest_step=100, fault=nan, outcome=Outcome.FAULT)


def cured(rung: str, knobs: Knobs, gpus: tuple[Gpu, ...] = (), day: int = 1, **fields: Any) -> list[Attempt]:
    second = Attempt("", 2, "here", knobs, rung, "because", gpus=gpus, resumed_step=60, outcome=Outcome.SUCCEEDED)
    ended = {"effective": knobs.to_dict(), "verdict": Verdict.RECOVERED, "ended_at": 100.0 * day + 50, **fields}
    return [faulty(gpus, day), replace(second, **ended)]


LOWER = SUBMITTED.but(lr=1e-4)


def test_without_a_store_or_a_tried_rung_a_message_is_shown(home: Path) -> None:
    assert "no rung has been tried" in run_ladder() and json.loads(run_ladder("--json")) == []
    assert not (home / "rung.db").exists()
    store_jobs(home, [])
    assert "no rung has been tried" in run_ladder()


def test_the_table_counts_over_all_jobs_of_the_store(home: Path) -> None:
    unseen = cured("lower_lr", LOWER, effective={}, verdict=None)
    short = cured("lower_lr", LOWER, effective={}, outcome=Outcome.FELL_SHORT)
    clipped = cured("raise_clip", SUBMITTED.but(clip=1.0), (TITAN,), effective={})
    store_jobs(home, cured("lower_lr", LOWER), unseen, short, clipped)
    head, *rows = [re.split(r"\s{2,}", line) for line in run_ladder().splitlines()]
    assert head == [
        *("FAULT", "GPU", "RUNG", "TRIES", "TOOK", "SURVIVED", "RECOVERED", "FELL SHORT", "FAILED", "LOST"),
        *("TRIALS WON", "LEAD", "CHANCE"),
    ]
    assert rows == [
        ["nan_loss", "TITANRTX", "raise_clip", "1", "not known", "0", "1", "0", "0", "40", "-", "-", "60 % (32-86)"],
        ["nan_loss", "cpu", "lower_lr", "3", "1, 2 not known", "1", "1", "1", "0", "40", "-", "-", "50 % (25-75)"],
    ]
    assert json.loads(run_ladder("--json"))[1] == {
        "fault": "nan_loss", "gpu": "cpu", "rung": "lower_lr", "tries": 3, "took": 1, "not_known": 2, "not_taken": 0,
        "survived": 1, "recovered": 1, "fell_short": 1, "failed": 0, "lost": 40, "trials": 0, "wins": 0, "beaten": 0,
        "lead": None, "won_against": [], "chance": {"mean": 0.5, "low": 0.2466, "high": 0.7534},
    }  # fmt: skip


def test_a_second_table_shows_who_won_trials_against_whom(home: Path) -> None:
    candidates = (Candidate("raise_clip", SUBMITTED.but(clip=1.0)), Candidate("lower_lr", LOWER, 0.1))

    def trial(index: int, loss: float) -> Attempt:
        readings = tuple((step, loss) for step in range(200))
        about = Trial(1, index, candidates, 0, 100, 200, 400, readings=readings, verdict="survived", won=index == 1)
        candidate = candidates[index]
        made = Attempt("", index + 2, "here", candidate.knobs, candidate.rung, "because", trial=about)
        return replace(made, outcome=Outcome.STOPPED, furthest_step=200)

    first, second = cured("lower_lr", LOWER)
    store_jobs(home, [first, trial(0, 1.5), trial(1, 1.0), replace(second, number=4)])
    lines = [re.split(r"\s{2,}", line) for line in run_ladder().splitlines()]
    assert [line[-3:] for line in lines[1:3]] == [["1 of 1", "50 %", "60 % (32-86)"], ["0 of 1", "-", "40 % (14-68)"]]
    assert lines[4] == ["FAULT", "GPU", "WON TRIALS", "AGAINST", "ROUNDS", "FAILED", "LEAD"]
    assert lines[5:] == [["nan_loss", "cpu", "lower_lr", "raise_clip", "1", "0", "50 %"]]
    row = json.loads(run_ladder("--json"))[0]
    assert row["won_against"] == [{"rung": "raise_clip", "rounds": 1, "failed": 0, "lead": 0.5}]


def test_a_lead_is_a_percentage_or_a_factor() -> None:
    row = Row(FaultKind.NAN_LOSS, "cpu", "lower_lr", trials=1, wins=1)
    shown = [ledger_text([replace(row, lead=lead)]).split()[-2] for lead in (9000.0, None)]
    assert shown == ["x9001", "-"] and " 61 % " in ledger_text([replace(row, lead=0.61)])


# What was predicted, and what came


def test_the_calibration_of_an_empty_store_is_a_clear_line(home: Path) -> None:
    assert run_ladder("--calibration").startswith("no rung has been taken yet")
    assert json.loads(run_ladder("--calibration", "--json"))["rungs"] == 0
    store_jobs(home, cured("lower_lr", LOWER, verdict=None))
    text = run_ladder("--calibration")
    assert text.startswith("no rung has been taken yet") and "Not counted: 1 that only survived" in text


def test_the_calibration_holds_what_was_predicted_against_what_came(home: Path) -> None:
    failed = cured("lower_lr", LOWER, day=3, outcome=Outcome.FELL_SHORT)
    store_jobs(home, cured("lower_lr", LOWER, day=1), cured("lower_lr", LOWER, day=2), failed)
    head, *rows = [re.split(r"\s{2,}", line) for line in run_ladder("--calibration").splitlines()]
    assert head == ["PREDICTED", "RUNGS", "MEAN", "RECOVERED", "BRIER"]
    assert rows[:4] == [
        ["40 to 60 %", "2", "50 %", "100 %", "0.248"],
        ["60 to 80 %", "1", "63 %", "0 %", "0.401"],
        ["all", "3", "55 %", "67 %", "0.299"],
        ["from the ladder", "3", "55 %", "67 %", "0.299"],
    ]
    assert "Brier score 0.299 over 3 rungs: 0 is perfect, and saying 67 % every time would score 0.222." in (
        run_ladder("--calibration")
    )
    data = json.loads(run_ladder("--calibration", "--json"))
    assert (data["rungs"], data["brier"], data["brier_of_mean"], data["not_known"]) == (3, 0.2991, 0.2222, 0)
    assert [(each["from"], each["to"], each["rungs"]) for each in data["ranges"]] == [(0.4, 0.6, 2), (0.6, 0.8, 1)]
    assert (data["from_the_ladder"]["rungs"], data["won_trials"]) == (3, {"rungs": 0})
    last = data["predictions"][2]
    assert (last["attempt"], last["rung"], last["recovered"], last["by_trials"]) == (2, "lower_lr", False, False)
    assert last["chance"]["runs"] == 2


@pytest.mark.parametrize("args", [["--calibraton"], ["nan_loss"], ["--calibration=3"], ["--calibration", "lower_lr"]])
def test_arguments_that_do_not_exist_are_refused_in_one_line(
    home: Path, args: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["rung", "ladder", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rung: ")
