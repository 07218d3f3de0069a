"""Tests that the training with three faults succeeds after three rungs in a container over SSH."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from tests.fleet.campaign import Campaign

SHIPPED = Path(__file__).parents[2] / "jobs" / "catalog" / "three-faults"


def test_a_three_rung_recovery_in_containers_succeeds_and_every_attempt_resumes(campaign: Campaign) -> None:
    shutil.copytree(SHIPPED, campaign.folder / "work-faults")
    spec = yaml.safe_load((SHIPPED / "job.yaml").read_text())
    fields = {name: spec[name] for name in ("run", "knobs", "checkpoint", "success", "recovery")}
    job = campaign.submit("faults", "A100:1", image=campaign.fleet.images["train"], **fields)
    campaign.control()
    attempts = campaign.wait_for_end(job)
    rungs = [attempt.rung for attempt in attempts]
    assert rungs[0] is None and len([rung for rung in rungs if rung]) >= 3, rungs
    assert {attempt.host for attempt in attempts} == {"ampere"}
    for attempt in attempts[1:]:
        assert attempt.resumed_step == (attempt.planned_step or 0)
    assert any(attempt.resumed_step for attempt in attempts[1:])
    assert attempts[-1].metrics["val_loss"] < spec["success"]["below"]
    shown = campaign.rung("history", job, "--diff")
    for attempt in attempts:
        assert f"attempt {attempt.number} on ampere (NVIDIA A100-SXM4-40GB)" in shown
    assert campaign.store.leases() == []
