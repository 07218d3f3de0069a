"""Tests that a run without NaN that no longer learns does not count as recovered."""

import pytest


@pytest.mark.long
def test_a_clip_that_only_hides_a_too_high_lr_is_undone(lab):
    # With lr 60 the run is NaN at once. Clipping ends the NaN, but the weights are damaged and the loss does not fall.
    ladder = {"ladder": ["raise_clip", "lower_lr"], "trials": "off"}
    history = lab.run(lab.job("none", "--steps 500", knobs={"lr": 60.0}, recovery=ladder))
    attempts = history["attempts"]
    assert [a["rung"] for a in attempts[:3]] == [None, "raise_clip", "lower_lr"]
    assert attempts[1]["fault"]["kind"] == "not_learning" and not attempts[1]["recovered"]
    assert "when it began" in attempts[1]["fault"]["evidence"]
    assert attempts[2]["asked"]["clip"] is None
    assert "had stopped learning" in attempts[2]["undone"][0]["reason"]
