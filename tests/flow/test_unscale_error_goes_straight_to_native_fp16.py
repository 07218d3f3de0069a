"""Errors of the scaler go straight to native_fp16: the three rungs below cannot cure them, and the history says why."""

import pytest

SKIPPED = ["raise_clip", "lower_lr", "increase_growth_interval"]


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        ("double_unscale", "unscale_() has already been called on this optimizer since the last update()."),
        # The shipped audio-lora is always run, and fails with the same words.
        pytest.param("half_model", "Attempting to unscale FP16 gradients.", marks=pytest.mark.long),
    ],
)
def test_one_relaunch_in_native_fp16_with_the_three_skipped_rungs(lab, flaw, message):
    story = lab.run(lab.job(flaw))
    first, second = story["attempts"]
    assert story["job"]["state"] == "SUCCEEDED", story["job"]["reason"]
    assert first["fault"]["kind"] == "unscale_error" and message in first["fault"]["evidence"]
    assert second["rung"] == "native_fp16" and second["asked"]["precision"] == "native_fp16"
    assert [item["rung"] for item in second["skipped"]] == SKIPPED
    assert all(item["reason"].startswith("cannot cure unscale_error") for item in second["skipped"])
