"""Tests that the training with three faults succeeds after three rungs, each a batch job of a real Slurm."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from rung.jobs.model.state import JobState
from tests.slurm.site import SiteLab

SHIPPED = Path(__file__).parents[2] / "jobs" / "catalog" / "three-faults"


@pytest.mark.long
@pytest.mark.sample
def test_a_three_rung_recovery_in_batch_jobs_succeeds_and_every_attempt_resumes(lab: SiteLab) -> None:
    shutil.copytree(SHIPPED, lab.folder / "faults")
    spec = yaml.safe_load((SHIPPED / "job.yaml").read_text())
    fields = {name: spec[name] for name in ("run", "knobs", "checkpoint", "success", "recovery")}
    job = lab.submit("faults", **fields)
    lab.control()
    assert lab.ended(job).state is JobState.SUCCEEDED, lab.job(job).reason
    attempts = lab.attempts(job)
    rungs = [attempt.rung for attempt in attempts]
    assert rungs[0] is None and len([rung for rung in rungs if rung]) >= 3, rungs
    assert {(attempt.host, attempt.node) for attempt in attempts} == {("lab", "ampere")}
    for attempt in attempts[1:]:
        assert attempt.resumed_step == (attempt.planned_step or 0)
    assert any(attempt.resumed_step for attempt in attempts[1:])
    assert attempts[-1].metrics["val_loss"] < spec["success"]["below"]
    # Each attempt was submitted once, and no check of a checkpoint is left in the queue.
    names = sorted(each["name"] for each in lab.batch_jobs() if job in each["name"])
    assert len(names) == len(set(names)) == len(attempts)
