"""Tests the comparison of jobs: what differs, values at equal steps over relaunches, and tables that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from rung.jobs.job import Attempt, Job, Outcome, Verdict
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.model.trial import Candidate, Trial
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.store import Store
from rung.runner.views.compare import compare, compare_text

NOW = 1000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "rung.db")
    yield opened
    opened.close()


def add(store: Store, name: str, **fields: Any) -> Job:
    spec = {"name": name, "run": "python train.py --lr {lr} --seed 1", "knobs": {"lr": 0.1}, **fields}
    with store.transaction():
        return store.add_job(JobSpec.model_validate(spec), Path("/"), at=0.0)


def ran(store: Store, paths: HomePaths, attempt: Attempt, losses: dict[int, float], extra: str = "") -> None:
    """Write an attempt and its log."""
    files = paths.attempt(attempt.job_id, attempt.number)
    files.folder.mkdir(parents=True)
    files.log.write_text("".join(f"step {step} loss {loss}\n" for step, loss in losses.items()) + extra)
    with store.transaction():
        store.put_attempt(replace(attempt, furthest_step=max(losses)))


def first(job: Job, **fields: Any) -> Attempt:
    known = {"outcome": Outcome.SUCCEEDED, "started_at": 0.0, "ended_at": 65.0, "by_person": True, **fields}
    return Attempt(job.id, 1, "localhost", job.knobs, None, "as submitted", **known)


def cured(store: Store, paths: HomePaths) -> Job:
    """Add a job whose first run was NaN from step 30 on, and which went on from step 20 after a trial."""
    job = add(store, "cured")
    gpu = (Gpu("NVIDIA A100", (8, 0), uuid="GPU-1"),)
    fault = Fault(FaultKind.NAN_LOSS, "loss nan", step=30)
    ran(store, paths, first(job, outcome=Outcome.FAULT, fault=fault, gpus=gpu), {n: 100.0 + n for n in range(1, 31)})
    trial = Trial(1, 0, (Candidate("lower_lr", job.knobs),), 20, 30, 50, 100)
    tried = Attempt(job.id, 2, "localhost", job.knobs, "lower_lr", "x", resumed_step=20, trial=trial)
    ran(store, paths, replace(tried, outcome=Outcome.STOPPED), dict.fromkeys(range(21, 51), 300.0))
    again = Attempt(job.id, 3, "localhost", job.knobs, "lower_lr", "x", resumed_step=20, verdict=Verdict.RECOVERED)
    ran(store, paths, again, {n: 200.0 + n for n in range(21, 81)})
    return job


def test_the_loss_is_that_of_the_run_that_went_on_and_never_of_a_trial(store: Store, tmp_path: Path) -> None:
    paths = HomePaths(tmp_path)
    jobs = [cured(store, paths), add(store, "plain", knobs={"lr": 0.2})]
    for last, loss in ((25, 225.0), (15, 115.0)):
        ran(store, paths, first(jobs[1]), {n: float(n) for n in range(1, last + 1)})
        data = compare(store, jobs, paths, NOW)
        assert (data["step"], data["differs"]) == (last, ["lr"])
        assert [job["loss"] for job in data["jobs"]] == [loss, float(last)]
        paths.attempt(jobs[1].id, 1).log.unlink()
        paths.attempt(jobs[1].id, 1).folder.rmdir()
    row = data["jobs"][0]
    assert (row["launches"], row["trials"], row["faults"], row["rungs"]) == (3, 1, {"nan_loss": 1}, ["lower_lr"])
    assert (row["verdict"], row["last_step"], row["steps_made"], row["gpu_seconds"]) == ("recovered", 80, 120, 65.0)


def test_a_trial_that_runs_now_is_not_compared(store: Store, tmp_path: Path) -> None:
    paths = HomePaths(tmp_path)
    jobs = [add(store, "a"), add(store, "b")]
    for job in jobs:
        ran(store, paths, first(job), {n: float(n) for n in range(1, 31)})
    trial = Trial(1, 0, (Candidate("lower_lr", jobs[0].knobs),), 20, 30, 50, 100)
    tried = Attempt(jobs[0].id, 2, "localhost", jobs[0].knobs, "lower_lr", "x", resumed_step=20, trial=trial)
    ran(store, paths, tried, dict.fromkeys(range(21, 51), 300.0))
    data = compare(store, jobs, paths, NOW)
    assert data["step"] == 30 and [job["loss"] for job in data["jobs"]] == [30.0, 30.0]


def test_a_job_that_has_not_begun_has_no_values_and_does_not_count(store: Store, tmp_path: Path) -> None:
    paths = HomePaths(tmp_path)
    jobs = [add(store, "a"), add(store, "b"), add(store, "c")]
    assert compare(store, jobs, paths, NOW)["step"] is None
    ran(store, paths, first(jobs[0]), {1: 5.0, 9: 4.0})
    data = compare(store, jobs, paths, NOW)
    assert data["step"] == 9 and [job["loss"] for job in data["jobs"]] == [4.0, None, None]
    assert "loss at 9" in compare_text(data, 80)


def test_the_metric_of_success_is_compared_where_all_have_the_same(store: Store, tmp_path: Path) -> None:
    paths = HomePaths(tmp_path)
    jobs = [add(store, name, success={"metric": "val_acc", "above": 0.5}) for name in "ab"]
    for index, job in enumerate(jobs):
        ran(store, paths, first(job), {1: 5.0, 2: 4.0}, f"val_acc=0.{index + 7}\n")
    data = compare(store, jobs, paths, NOW)
    assert data["metric"] == "val_acc" and [job["metric_value"] for job in data["jobs"]] == [0.7, 0.8]
    assert "val_acc at 2" in compare_text(data, 80)
    other = add(store, "c", success={"metric": "bleu", "above": 3})
    assert compare(store, [*jobs, other], paths, NOW)["metric"] is None


def test_settings_that_differ_are_named_by_their_path_and_only_they(store: Store, tmp_path: Path) -> None:
    fields = {"run": "python train.py --lr {lr} --seed 2", "envs": {"MODE": "x"}, "recovery": {"max_attempts": 3}}
    jobs = [add(store, "a"), add(store, "b", **fields)]
    data = compare(store, jobs, HomePaths(tmp_path), NOW)
    assert set(data["differs"]) == {"recovery.max_attempts", "envs.MODE", "run"}
    assert data["jobs"][1]["settings"]["run"] == "2" and data["jobs"][0]["settings"]["envs.MODE"] is None


@pytest.mark.parametrize("count", [2, 3, 12])
def test_the_table_fits_the_terminal(store: Store, tmp_path: Path, count: int) -> None:
    paths = HomePaths(tmp_path)
    jobs = [cured(store, paths), *(add(store, f"job{n}", knobs={"lr": n / 7}) for n in range(1, count))]
    for job in jobs[1:]:
        ran(store, paths, first(job), {n: n / 3 for n in range(1, 81)})
    lines = click.unstyle(compare_text(compare(store, jobs, paths, NOW), 80)).splitlines()
    assert max(map(len, lines)) <= 80, lines
    assert (lines[0].split()[0] == "JOB") is (count == 12)
    shown = "\n".join(lines)
    assert all(job.id in shown for job in jobs) and "recovered" in shown and "nan_loss" in shown


def test_fewer_than_two_jobs_are_refused(run_rung: Callable[..., Any], home: Path) -> None:
    home.mkdir(mode=0o700)
    opened = Store(home / "rung.db")
    one, two = add(opened, "one"), add(opened, "two", knobs={"lr": 1})
    opened.close()
    for words in ((), (one.id,), (one.id, one.id), (one.id, "one"), (one.id, two.id, "--group", "g"), ("--group", "g")):
        code, _, err = run_rung("compare", *words)
        assert code == 2 and len(err.splitlines()) == 1, words
    code, out, _ = run_rung("compare", "one", "two")
    assert code == 0 and "lr" in out and str(JobState.QUEUED) in out
