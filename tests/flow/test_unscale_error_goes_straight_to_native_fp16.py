"""Tests that errors of the scaler skip the rungs that cannot cure them, with the reason, and use native_fp16."""

import pytest

SKIPPED = ["raise_clip", "lower_lr", "increase_growth_interval"]


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        ("double_unscale", "unscale_() has already been called on this optimizer since the last update()."),
        # The audio-lora job of the catalog has the same error, and always runs.
        pytest.param("half_model", "Attempting to unscale FP16 gradients.", marks=pytest.mark.long),
    ],
)
def test_one_relaunch_in_native_fp16_with_the_three_skipped_rungs(lab, flaw, message):
    history = lab.run(lab.job(flaw))
    first, second = history["attempts"]
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    assert first["fault"]["kind"] == "unscale_error" and message in first["fault"]["evidence"]
    assert second["rung"] == "native_fp16" and second["asked"]["precision"] == "native_fp16"
    assert [item["rung"] for item in second["skipped"]] == SKIPPED
    assert all(item["reason"].startswith("cannot cure unscale_error") for item in second["skipped"])
