"""Asked is not effective: a job that brings its old lr back with the optimizer is caught, and the history says so."""


def test_a_job_that_ignores_its_lr_after_loading_is_recorded_as_did_not_take(lab):
    job = lab.job("ignores_lr", "--steps 200", knobs={"lr": 40.0}, recovery={"ladder": ["lower_lr", "fp32"]})
    story = lab.run(job)
    second = story["attempts"][1]
    assert second["rung"] == "lower_lr" and second["resumed_step"] is not None
    assert second["not_taken"]["lr"] == {"asked": 4.0, "effective": 40.0}
    assert [e["data"]["lr"] for e in story["events"] if e["kind"] == "not_taken" and e["attempt"] == 2] == [
        {"asked": 4.0, "effective": 40.0}
    ]
    third = story["attempts"][2]
    assert third["undone"] == [
        {"rung": "lower_lr", "reason": "did not take in attempt 2: lr asked 4.0, effective 40.0"}
    ]
    assert "did not take" in lab.rung("history", story["job"]["id"], "--diff")
