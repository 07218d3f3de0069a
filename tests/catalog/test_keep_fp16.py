"""Tests that jobs of the reports stay in FP16 by zero-edit: only the place that overflows is computed in FP32."""

import pytest

from tests.catalog.conftest import metric


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "fault", "place"),
    [
        ("mmgcn", "nan_loss", "loss"),
        # It leaves out every batch, so that there is no backward pass and no number from inside.
        pytest.param("sar-kd", "nan_loss", "Student", marks=pytest.mark.sample),
        ("dbnet-ocr", "scale_collapse", "loss"),
    ],
)
def test_one_place_in_fp32_cures_a_job_that_its_flags_would_bring_to_fp32(lab, name, fault, place):
    story = lab.run(lab.catalog(name, file="zero-edit.yaml"))
    assert story["job"]["state"] == "SUCCEEDED", story["job"]["reason"]
    first, second = story["attempts"]
    assert first["fault"]["kind"] == fault
    assert (second["rung"], second["asked"]["fp32_modules"]) == ("fp32_modules", place)
    assert second["effective"]["fp32_modules"] == place and second["effective"]["precision"] == "amp_fp16"
    assert metric(story) == pytest.approx(lab.fp32_metric(name), rel=0.01)
