"""Tests that a run which hangs is stopped with its stacks in the log, and goes on from its last healthy checkpoint."""

import pytest

from tests.flow.conftest import TRAININGS


@pytest.mark.parametrize("mode", ["zero-edit", "flags"])
def test_a_run_that_waits_for_a_lock_for_ever_goes_on_from_its_last_checkpoint(lab, mode):
    job = {
        "name": "hangs",
        "run": "python hangs.py",
        "knobs": {"mode": mode},
        "checkpoint": {"pattern": "step_*.pt"},
        # Longer than any step takes on a busy machine.
        "recovery": {"stalled": "15s", "max_attempts": 1},
    }
    history = lab.run(lab.write(job, TRAININGS / "hangs.py"))
    first, second = history["attempts"]
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    fault = first["fault"]
    assert (fault["kind"], fault["step"]) == ("stalled", 30)
    assert fault["evidence"].startswith("no sign of life for ")
    assert fault["evidence"].endswith(" s, longer than recovery.stalled (15 s)")
    # The same knobs, on the budget of the machine: the job may have one attempt for its own faults.
    assert (second["rung"], second["resumed_from"], second["resumed_step"]) == (None, "step_30.pt", 30)
    assert "no rung cures a run that hangs; the same knobs again" in second["because"]
    log = lab.log(history["job"]["id"], 1)
    if mode == "flags":
        # Nothing of Rung is inside: it is not asked, because the signal would end it.
        assert fault["note"] == "none of its processes showed a stack"
        return
    assert fault["note"].startswith("it stands at hangs.py:18 in wait_for_ever; the stacks of all threads are at")
    assert "rung: no sign of life; the stacks" in log and log.rindex("in wait_for_ever") > log.index("step 30 loss")
