"""Tests that a run which prints NaN and does not end is stopped."""


def test_an_endless_run_is_stopped_when_its_loss_is_nan(lab):
    job = lab.job("never_ends", knobs={"lr": 60.0}, recovery={"ladder": [], "grace": 5})
    history = lab.run(job)
    assert history["job"]["state"] == "FAILED"
    (attempt,) = history["attempts"]
    assert attempt["fault"]["kind"] == "nan_loss"
    assert "Killed" not in lab.log(history["job"]["id"], 1)
