"""Tests that a dry run says which trials each fault would bring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Job
from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.engines.process import ProcessEngine
from rung.runner.preflight.check_job import check_job, planned_job
from rung.runner.preflight.trial_preview import trial_candidates, trial_lines


def job(trials: Any = "on", **fields: Any) -> Job:
    spec = {"name": "a", "run": "python train.py", "knobs": {"mode": "zero-edit"}, "recovery": {"trials": trials}}
    return planned_job(JobSpec.model_validate({**spec, **fields}), 1)


def test_every_numeric_fault_has_its_candidates() -> None:
    found = trial_candidates(job())
    assert set(found) == {"nan_loss", "grad_nonfinite", "divergence", "not_learning", "scale_collapse"}
    assert found["nan_loss"] == ["raise_clip", "lower_lr x0.1", "lower_lr x0.01", "fp32"]
    assert "trial nan_loss: raise_clip, lower_lr x0.1, lower_lr x0.01, fp32" in list(trial_lines(job()))


def test_what_the_job_cannot_receive_is_no_candidate() -> None:
    flags = job(run="python train.py --lr {lr}", knobs={"lr": 0.1})
    assert trial_candidates(flags)["nan_loss"] == ["lower_lr x0.1", "lower_lr x0.01"]


def test_the_job_file_bounds_the_candidates() -> None:
    assert trial_candidates(job({"candidates": 2}))["nan_loss"] == ["raise_clip", "lower_lr x0.1"]


def test_without_trials_the_dry_run_says_so() -> None:
    assert trial_candidates(job("off")) == {}
    assert list(trial_lines(job("off"))) == ["trial none (recovery.trials: off)"]


@pytest.mark.parametrize(
    ("folder", "kind"), [("/data/ckpt", "an absolute path"), ("../ckpt", "outside of the job's folder")]
)
def test_a_folder_that_all_trials_would_share_is_said_before_the_run(folder: str, kind: str, tmp_path: Path) -> None:
    shared = job(checkpoint={"dir": folder})
    (line,) = trial_lines(shared)
    assert trial_candidates(shared) == {} and line.startswith(f"trial none (checkpoint.dir is {kind}, so that a trial")
    found = check_job(shared.spec, tmp_path, HomePaths(tmp_path), ProcessEngine(), {})
    assert [
        each.what for each in found if each.what.startswith(f"recovery.trials has no effect: checkpoint.dir is {kind}")
    ]
