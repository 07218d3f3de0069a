"""Tests trials in containers over SSH: each has a copy of the checkpoint in a folder of its own on the host."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from rung.jobs.job import main_line
from tests.fleet.campaign import Campaign

SHIPPED = Path(__file__).parents[2] / "jobs" / "catalog" / "three-faults"


@pytest.mark.long
@pytest.mark.sample
def test_trials_on_a_host_decide_and_leave_nothing_behind(campaign: Campaign) -> None:
    shutil.copytree(SHIPPED, campaign.folder / "work-trials")
    spec = yaml.safe_load((SHIPPED / "job.yaml").read_text())
    fields = {name: spec[name] for name in ("run", "knobs", "checkpoint", "success")}
    job = campaign.submit(
        "trials",
        "A100:1",
        image=campaign.fleet.images["train"],
        recovery={**spec["recovery"], "trials": "on"},
        **fields,
    )
    campaign.control()
    attempts = campaign.wait_for_end(job)
    tables = [event.data for event in campaign.store.events(job) if event.kind == "trials"]
    assert tables and sum(row["verdict"] == "won" for row in tables[0]["table"]) == 1
    trials = [attempt for attempt in attempts if attempt.trial is not None]
    assert len(trials) >= 2 and len({attempt.residence for attempt in trials}) == len(trials)
    for attempt in trials:
        assert attempt.resumed_step == (attempt.planned_step or 0)
    assert main_line(attempts)[-1].metrics["val_loss"] < spec["success"]["below"]
    assert campaign.store.leases() == []
    # Only the folders of the job's own runs are left.
    own = {attempt.residence for attempt in main_line(attempts)}
    stays = campaign.fleet.hosts["ampere"].work / f".rung/{campaign.store.store_id}/jobs/{job}/stays"
    campaign.wait(lambda: {int(path.name) for path in stays.iterdir()} == own)
