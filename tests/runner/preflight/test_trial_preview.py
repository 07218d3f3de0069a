"""Tests that a dry run says which trials each fault would bring."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Job
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.decide.decide import Relaunch
from rung.recovery.trials.decide_trials import decide_with_trials
from rung.recovery.trials.plan import TRIED
from rung.runner.engines.process import ProcessEngine
from rung.runner.preflight.check_job import check_job, planned_job
from rung.runner.preflight.trial_preview import trial_candidates, trial_lines
from tests.support.jobs_in_trouble import a_checkpoint
from tests.support.pretend import worlds
from tests.support.trials_in_memory import faulty, labels

ACT = {"trials": {"cost": "100%"}, "not_learning": "act"}


def job(trials: Any = "on", **fields: Any) -> Job:
    spec = {"name": "a", "run": "python train.py", "knobs": {"mode": "zero-edit"}, "recovery": {"trials": trials}}
    return planned_job(JobSpec.model_validate({**spec, **fields}), 1)


def test_every_numeric_fault_has_its_candidates() -> None:
    found = trial_candidates(job())
    assert set(found) == {"nan_loss", "grad_nonfinite", "divergence", "scale_collapse"}
    assert found["nan_loss"] == ["raise_clip", "lower_lr x0.1", "lower_lr x0.01", "fp32"]
    lines = list(trial_lines(job()))
    assert "trial nan_loss: raise_clip, lower_lr x0.1, lower_lr x0.01, fp32" in lines
    assert lines[-1].startswith("trial after lower_lr has won: one lr between two tenths")


@pytest.mark.parametrize("kind", sorted(TRIED - {FaultKind.NOT_LEARNING}))
@pytest.mark.parametrize("knobs", [{"mode": "zero-edit"}, {"mode": "inside", "lr": 0.1, "clip": 5.0}])
def test_the_dry_run_shows_what_is_decided_after_each_fault(kind: FaultKind, knobs: dict[str, Any]) -> None:
    asked = job(knobs=knobs)
    effective = {"lr": 0.1, "precision": "amp_fp16"}
    fault = faulty(asked, 5000, kind, None, furthest_step=5010, healthy_loss=0.5, effective=effective)
    decision = decide_with_trials(asked, [fault], [a_checkpoint(4990)], None)
    assert isinstance(decision, Relaunch) and decision.trial is not None
    assert trial_candidates(asked)[kind] == labels(decision.trial)


def test_the_dry_run_shows_what_a_run_that_never_learned_brings(tmp_path: Path) -> None:
    noise = random.Random(0)
    with worlds(tmp_path, ampere=["A100"]) as build:
        world = build()
        asked = {"knobs": {"mode": "inside", "lr": 0.1, "precision": "amp_fp16"}, "recovery": ACT}
        name = world.submit("a", "A100", **asked)
        world.until(lambda: world.is_running(name))
        lines = "".join(f"step {step} loss {noise.gauss(2, 0.04):.6g}\n" for step in range(2, 301))
        world.engine("ampere").append_log(f"{name}/1", lines.encode())
        world.turn(3)
        world.engine("ampere").end(f"{name}/1")
        world.until(lambda: world.last(name).number == 2)
        trial = world.last(name).trial
        assert trial is not None
        assert trial_candidates(world.job(name))["not_learning"] == labels(trial)


def test_what_the_job_cannot_receive_is_no_candidate() -> None:
    flags = job(run="python train.py --lr {lr}", knobs={"lr": 0.1})
    assert trial_candidates(flags)["nan_loss"] == ["lower_lr x0.1", "lower_lr x0.01"]
    once = job(run="python train.py --clip {clip}", knobs={"clip": 5.0})
    assert "trial nan_loss: none, one rung at most can be tried" in list(trial_lines(once))


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
