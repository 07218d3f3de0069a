"""Tests zero-edit with an unedited script in a container that redirects its output to a file."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.fleet.campaign import Campaign

STRANGER = Path(__file__).parents[1] / "flow" / "strangers" / "torch_mask.py"


def test_zero_edit_detects_and_cures_a_fault_in_a_container(campaign: Campaign) -> None:
    (campaign.folder / "work-stranger").mkdir()
    shutil.copy(STRANGER, campaign.folder / "work-stranger" / "train.py")
    job = campaign.submit(
        "stranger",
        "A100:1",
        image=campaign.fleet.images["train"],
        run=["sh", "-c", "python train.py > out.txt 2>&1"],
        knobs={"mode": "zero-edit"},
    )
    campaign.control()
    first, cured = campaign.wait_for_end(job)
    assert first.fault is not None and first.fault.kind == "fp16_overflow"
    assert "train.py" in first.fault.source
    assert cured.rung == "clamp_constants" and cured.effective["precision"] == "amp_fp16"
    assert cured.furthest_step == 200
    log = campaign.log(job, 2)
    assert all(line.startswith("rung| ") for line in log.splitlines()), log[:2000]
