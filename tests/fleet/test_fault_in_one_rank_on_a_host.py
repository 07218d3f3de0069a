"""Tests two ranks in a container over SSH, one for each leased GPU: a fault in either is seen and cured once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fleet.campaign import Campaign

SCRIPT = Path(__file__).parents[1] / "flow" / "trainings" / "two_ranks.py"


@pytest.mark.long
@pytest.mark.parametrize("bad", [0, 1])
def test_a_bad_number_in_one_rank_is_one_fault_and_both_ranks_go_on_from_rungs_checkpoint(
    campaign: Campaign, bad: int
) -> None:
    (campaign.folder / "work-ranks").mkdir()
    shutil.copy(SCRIPT, campaign.folder / "work-ranks")
    job = campaign.submit(
        "ranks",
        "A100:2",
        image=campaign.fleet.images["train"],
        run=f"python {SCRIPT.name} --flaw range --bad-rank {bad}",
        ranks="gpus",
        # No name of the container is known there: the ranks meet on the loopback.
        network="none",
        knobs={"mode": "zero-edit"},
        checkpoint={"by": "rung", "every": 5},
        recovery={"trials": "off"},
    )
    campaign.fleet.hosts["ampere"].set_gpus(2)
    campaign.control()
    first, second = campaign.wait_for_end(job)
    assert [len(attempt.gpus) for attempt in (first, second)] == [2, 2]
    assert first.fault is not None and first.fault.kind == "nan_loss"
    assert first.fault.replay.get("rank", "0") == str(bad)
    assert len([event for event in campaign.store.events(job) if event.kind == "fault"]) == 1
    assert second.rung == "fp32_modules" and (second.resumed_step, second.furthest_step) == (10, 24)
    # The script itself counts its batches from the checkpoint on.
    for rank in (0, 1):
        assert campaign.log(job, 2).count(f"[rank{rank}]: step=14 loss=") == 1
    assert campaign.store.leases() == []


@pytest.mark.long
@pytest.mark.parametrize("bad", [0, 1])
def test_an_exception_in_one_rank_of_a_script_with_flags(campaign: Campaign, bad: int) -> None:
    (campaign.folder / "work-flags").mkdir()
    shutil.copy(SCRIPT, campaign.folder / "work-flags")
    run = f"python {SCRIPT.name} --by-hand --flaw mask --bad-rank {bad} --precision {{precision}}"
    job = campaign.submit(
        "flags",
        "A100:2",
        image=campaign.fleet.images["train"],
        run=f"{run} --dir {{checkpoint_dir}} --resume {{checkpoint}}",
        ranks="gpus",
        network="none",
        recovery={"ladder": ["fp32"], "trials": "off"},
    )
    campaign.fleet.hosts["ampere"].set_gpus(2)
    campaign.control()
    first, second = campaign.wait_for_end(job)
    assert first.fault is not None and first.fault.kind == "fp16_overflow"
    assert first.fault.evidence.startswith(f"[rank{bad}]: RuntimeError: value cannot be converted"), first.fault
    assert len([event for event in campaign.store.events(job) if event.kind == "fault"]) == 1
    assert (second.rung, second.resumed_step, second.furthest_step) == ("fp32", 10, 24)
    for rank in (0, 1):
        assert campaign.log(job, 2).count(f"[rank{rank}]: step=14 loss=") == 1
