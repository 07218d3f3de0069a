"""The ladder ends in a diagnosis, not in silence."""


def test_nan_in_fp32_at_the_same_step_blames_the_model_or_the_data(lab):
    story = lab.run(lab.job("data_bug"))
    assert story["job"]["state"] == "FAILED"
    assert [a["rung"] for a in story["attempts"]] == [None, "raise_clip", "lower_lr", "fp32"]
    assert {a["fault"]["step"] for a in story["attempts"]} == {41}
    assert "NaN in FP32 too, at step 41" in story["job"]["reason"]
    assert "the model or the data" in story["job"]["reason"]
    assert story["attempts"][-1]["asked"]["lr"] == 0.05


def test_an_exit_nobody_knows_is_tried_once_more_and_then_told_with_its_last_line(lab):
    story = lab.run(lab.job("none", "--no-such-flag"))
    assert story["job"]["state"] == "FAILED"
    assert len(story["attempts"]) == 2
    assert all(a["fault"]["kind"] == "unknown_exit" for a in story["attempts"])
    assert "unrecognized arguments: --no-such-flag" in story["attempts"][-1]["fault"]["evidence"]


def test_exit_code_0_is_not_success_by_itself(lab):
    story = lab.run(lab.job("none", success={"metric": "val_loss", "below": 1e-9}))
    assert story["job"]["state"] == "FAILED"
    assert "not below 1e-09" in story["job"]["reason"]
    assert story["attempts"][0]["outcome"] == "fell_short"
