"""Tests that a job which loads its old lr with the optimizer is detected and recorded in the history."""


def test_an_lr_that_the_job_ignores_after_loading_is_recorded_as_not_taken(lab):
    recovery = {"ladder": ["lower_lr", "fp32"], "trials": "off"}
    job = lab.job("ignores_lr", "--steps 200", knobs={"lr": 40.0}, recovery=recovery)
    history = lab.run(job)
    second = history["attempts"][1]
    assert second["rung"] == "lower_lr" and second["resumed_step"] is not None
    assert second["not_taken"]["lr"] == {"asked": 4.0, "effective": 40.0}
    assert [e["data"]["lr"] for e in history["events"] if e["kind"] == "not_taken" and e["attempt"] == 2] == [
        {"asked": 4.0, "effective": 40.0}
    ]
    third = history["attempts"][2]
    assert third["undone"] == [
        {"rung": "lower_lr", "reason": "did not take in attempt 2: lr asked 4.0, effective 40.0"}
    ]
    assert "did not take" in lab.rung("history", history["job"]["id"], "--diff")
