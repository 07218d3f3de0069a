"""Tests that a dry run says which trials each fault would bring."""

from __future__ import annotations

from typing import Any

from rung.jobs.job import Job
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.preflight.check_job import planned_job
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
