"""Tests that a run which hangs in a container shows its stacks, and goes on from its last checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.fleet.campaign import Campaign

HANGS = Path(__file__).parents[1] / "flow" / "trainings" / "hangs.py"


def test_a_run_that_hangs_in_a_container_shows_its_stacks_and_goes_on(campaign: Campaign) -> None:
    (campaign.folder / "work-hangs").mkdir()
    shutil.copy(HANGS, campaign.folder / "work-hangs")
    # Longer than any step takes on a busy machine.
    fields = {"knobs": {"mode": "zero-edit"}, "recovery": {"stalled": "15s"}}
    job = campaign.submit("hangs", image=campaign.fleet.images["train"], run="python hangs.py", **fields)
    campaign.control()
    first, second = campaign.wait_for_end(job)
    assert first.fault is not None and (first.fault.kind, first.fault.step) == ("stalled", 30)
    assert first.fault.note.startswith("it stands at hangs.py:18 in wait_for_ever; ")
    log = campaign.rung("logs", job, "--attempt", "1")
    assert log.index("rung: no sign of life; the stacks") < log.index("in wait_for_ever")
    assert (second.rung, second.resumed_from, second.resumed_step, second.fault) == (None, "step_30.pt", 30, None)
