"""Tests that a run which hangs is not asked for its stacks where nothing of Rung is inside, and goes on all the same.

With Rung inside, tests/support/stories.py tells the rest, on every engine.
"""

from tests.flow.conftest import TRAININGS


def test_a_run_with_flags_is_not_asked_and_goes_on_from_its_last_checkpoint(lab):
    job = {
        "name": "hangs",
        "run": "python hangs.py",
        "checkpoint": {"pattern": "step_*.pt"},
        # Longer than any step takes on a busy machine.
        "recovery": {"stalled": "15s", "max_attempts": 1},
    }
    history = lab.run(lab.write(job, TRAININGS / "hangs.py"))
    first, second = history["attempts"]
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    assert (first["fault"]["kind"], first["fault"]["step"]) == ("stalled", 30)
    # The signal would end it.
    assert first["fault"]["note"] == "none of its processes showed a stack"
    assert (second["rung"], second["resumed_from"], second["resumed_step"]) == (None, "step_30.pt", 30)
