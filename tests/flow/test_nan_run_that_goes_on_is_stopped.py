"""A run that prints NaN and goes on for ever is stopped, not watched for ever."""


def test_an_endless_run_is_ended_when_its_loss_is_nan(lab):
    job = lab.job("never_ends", knobs={"lr": 60.0}, recovery={"ladder": [], "grace": 5})
    story = lab.run(job)
    assert story["job"]["state"] == "FAILED"
    (attempt,) = story["attempts"]
    assert attempt["fault"]["kind"] == "nan_loss"
    assert "Killed" not in lab.log(story["job"]["id"], 1)
