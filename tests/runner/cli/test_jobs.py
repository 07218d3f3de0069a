"""Tests the commands that submit, cancel, retry and show jobs, and the dry run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.model.state import JobState
from rung.runner.cli.main import cli
from tests.support.stored_jobs import submitted

Rung = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[3]
COMMANDS = sorted(cli.commands)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Jobs


def test_launch_queues_the_job_and_warns_without_a_controller(run_rung: Any, home: Path, job_file: Path) -> None:
    code, out, err = run_rung("launch", job_file)
    assert (code, out.splitlines()[0]) == (0, "submitted a-1")
    assert err == "no controller is running, so nobody watches a-1: `rung controller --background` starts one\n"
    assert json.loads(run_rung("launch", "--json", job_file)[1]) == {"id": "a-2", "name": "a", "state": "QUEUED"}
    rows = json.loads(run_rung("queue", "--json")[1])
    assert [(row["id"], row["state"], row["recoveries"]) for row in rows] == [
        ("a-1", "QUEUED", 0),
        ("a-2", "QUEUED", 0),
    ]
    assert [line.split()[:3] for line in run_rung("queue", "--wide")[1].splitlines()] == [
        ["ID", "NAME", "STATE"], ["a-1", "a", "QUEUED"], ["a-2", "a", "QUEUED"],
    ]  # fmt: skip


def test_the_history_of_a_queued_job_is_empty(run_rung: Any, home: Path) -> None:
    job_id = submitted(home)
    code, out, _ = run_rung("history", "--diff", job_id)
    assert (code, out.splitlines()[-1]) == (0, "no attempt yet")
    assert json.loads(run_rung("history", "--json", job_id)[1])["attempts"] == []


def test_a_queued_job_is_cancelled_once(run_rung: Any, home: Path) -> None:
    job_id = submitted(home)
    assert run_rung("cancel", job_id) == (0, f"{job_id} is CANCELLED\n", "")
    code, _, err = run_rung("cancel", job_id)
    assert (code, err) == (2, f"rung: job {job_id} is CANCELLED already; there is nothing to cancel\n")


def grid_jobs(run_rung: Any, folder: Path) -> tuple[str, list[str]]:
    """Launch a grid of three jobs that nobody starts; return the id of its group, and theirs."""
    file = folder / "many.yaml"
    file.write_text("name: many\nrun: echo {seed}\n", encoding="utf-8")
    shown = json.loads(run_rung("launch", file, "--grid", "seed=1,2,3", "--at-once", "1", "--json")[1])
    return shown["group"], [job["id"] for job in shown["jobs"]]


def test_a_group_is_cancelled_with_all_its_jobs_once(run_rung: Any, home: Path, tmp_path: Path) -> None:
    other = submitted(home)
    group, jobs = grid_jobs(run_rung, tmp_path)
    assert run_rung("cancel", jobs[0])[1] == f"{jobs[0]} is CANCELLED\n"
    code, out, _ = run_rung("cancel", group)
    assert (code, out.splitlines()) == (0, [f"{job} is CANCELLED" for job in jobs[1:]])
    states = {row["id"]: row["state"] for row in json.loads(run_rung("queue", "--json")[1])}
    assert states == {other: "QUEUED", **dict.fromkeys(jobs, "CANCELLED")}
    said = f"rung: group {group}: all of its jobs have ended; there is nothing to cancel\n"
    assert run_rung("cancel", group) == (2, "", said)


def test_a_cancelled_group_in_json_and_a_job_that_has_the_name_of_a_group(
    run_rung: Any, home: Path, tmp_path: Path
) -> None:
    group, jobs = grid_jobs(run_rung, tmp_path)
    same = tmp_path / "same.yaml"
    same.write_text(f"name: {group}\nrun: echo\n", encoding="utf-8")
    alone = json.loads(run_rung("launch", same, "--json")[1])["id"]
    assert json.loads(run_rung("cancel", group, "--json")[1])["id"] == alone, "a job comes first"
    assert run_rung("rm", "--yes", alone)[0] == 0
    shown = json.loads(run_rung("cancel", group, "--json")[1])
    assert shown == {
        "group": group,
        "jobs": [{"id": job, "state": "CANCELLED", "cancel_requested": True} for job in jobs],
    }


def test_cancelling_a_running_job_requests_its_end(run_rung: Any, home: Path) -> None:
    job_id = submitted(home, JobState.LAUNCHING, JobState.RUNNING)
    assert json.loads(run_rung("cancel", "--json", job_id)[1]) == {
        "id": job_id, "state": "RUNNING", "cancel_requested": True,
    }  # fmt: skip


@pytest.mark.parametrize("setting", ["lr=1e-4", "knobs.lr=1e-4"])
def test_retry_changes_a_knob_of_a_failed_job(setting: str, run_rung: Any, home: Path) -> None:
    job_id = submitted(home, JobState.LAUNCHING, JobState.FAILED)
    data = json.loads(run_rung("retry", "--json", job_id, "--set", setting)[1])
    assert (data["state"], data["knobs"]["lr"]) == ("QUEUED", 1e-4)


def test_retry_records_that_a_person_gave_up_the_hosts_that_do_not_answer(run_rung: Any, home: Path) -> None:
    job_id = submitted(home, JobState.LAUNCHING, JobState.FAILED)
    assert run_rung("retry", job_id, "--give-up-hosts")[0] == 0
    events = json.loads(run_rung("history", "--json", job_id)[1])["events"]
    assert [event["data"] for event in events if event["kind"] == "retried"] == [{"knobs": {}, "give_up_hosts": True}]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("lr", "--set lr: write it as knob=value"),
        ("=3", "--set : no such knob"),
        ("lrr=1", "--set lrr: no such knob; known: lr"),
        ("knobs.lrr=1", "--set lrr: no such knob; known: lr"),
        ("recovery.max_attempts=3", "--set recovery.max_attempts: no such knob; known: lr"),
        ("lr=fast", "--set lr: Input should be a valid number"),
        ("lr=-1", "--set lr: Input should be greater than 0"),
        ("batch=2", "--set batch: the job cannot receive batch"),
    ],
)
def test_a_bad_setting_is_an_error_and_the_job_stays_failed(
    setting: str, message: str, run_rung: Any, home: Path
) -> None:
    job_id = submitted(home, JobState.LAUNCHING, JobState.FAILED)
    code, out, err = run_rung("retry", job_id, "--set", setting)
    assert (code, out) == (2, "")
    assert err.startswith(f"rung: {message}") and err.count("\n") == 1
    assert json.loads(run_rung("queue", "--json")[1])[0]["state"] == "FAILED"


def test_a_running_job_cannot_be_retried(run_rung: Any, home: Path) -> None:
    job_id = submitted(home, JobState.LAUNCHING, JobState.RUNNING)
    code, _, err = run_rung("retry", job_id)
    assert (code, err) == (2, f"rung: job {job_id} is RUNNING; only a FAILED or CANCELLED job can be retried\n")


# Dry run


def test_a_dry_run_prints_what_would_be_run_and_writes_nothing(run_rung: Any, home: Path, job_file: Path) -> None:
    code, out, err = run_rung("launch", "--dryrun", job_file)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "run   python train.py --lr 0.001" in lines
    assert f"cwd   {job_file.parent}" in lines
    assert f"log   {home}/jobs/a-1/attempts/1/log" in lines
    assert "limit cpus 2" in lines
    assert """env   MODE='it'"'"'s amp_fp16'""" in lines
    assert "env   TOKEN (secret, its value is not shown)" in lines
    assert any(line.startswith("env   RUNG_KNOBS=") for line in lines)
    assert "rung  lower_lr: lr 0.001 -> 0.0001" in lines
    assert any(line.startswith("rung  fp32: ") for line in lines)
    assert not home.exists()


def test_a_dry_run_as_json_is_the_request(run_rung: Any, home: Path, job_file: Path) -> None:
    data = json.loads(run_rung("launch", "--dryrun", "--json", job_file)[1])
    assert data["argv"] == ["python", "train.py", "--lr", "0.001"]
    assert data["cwd"] == str(job_file.parent)
    assert data["env"]["MODE"] == "it's amp_fp16"
    assert data["secrets"] == ["TOKEN"]
    assert data["ladder"]["lower_lr"] == {"lr": [0.001, 0.0001]}
    assert set(data) >= {"argv", "cwd", "env", "secrets", "limits", "log", "host", "ladder"}
    assert not home.exists()


def test_a_dry_run_does_not_change_the_store(home: Path, job_file: Path, rung: Rung) -> None:
    submitted(home)
    before = files(home)
    assert f"{home}/jobs/a-2/" in rung("launch", "--dryrun", job_file).out
    assert files(home) == before


def test_a_launch_runs_what_the_dry_run_printed(home: Path, tmp_path: Path, rung: Rung) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"name": "a", "run": ["echo", "{lr}"], "knobs": {"lr": 0.25}}), encoding="utf-8")
    planned = json.loads(rung("launch", "--dryrun", "--json", file).out)
    assert rung("launch", "-f", file).code == 0
    done = json.loads((home / "jobs/a-1/attempts/1/request.json").read_text())
    assert {name: planned[name] for name in done} == done
    assert rung("logs", "a").out == "0.25\n"
