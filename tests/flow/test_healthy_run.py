"""Tests that a healthy run is not changed, and that a person can cancel, retry and follow it."""

import pytest

from tests import pace


def test_a_healthy_run_is_one_attempt(lab):
    history = lab.run(lab.job("none", success={"metric": "val_loss", "below": 5.0}))
    assert history["job"]["state"] == "SUCCEEDED"
    assert history["job"]["recoveries"] == 0 and len(history["attempts"]) == 1
    assert history["attempts"][0]["furthest_step"] == 120
    assert history["attempts"][0]["metrics"]["val_loss"] < 5.0


def wait_for(lab, name, wanted):
    def wanted_row():
        row = lab.row(name)
        return row if wanted(row) else None

    return pace.until(wanted_row, 60, every=0.05)


def test_cancel_ends_a_running_job_and_retry_resumes_it_from_its_checkpoint(lab):
    name = lab.submit(lab.job("never_ends"))
    controller = lab.controller()
    try:
        wait_for(lab, name, lambda row: row["state"] == "RUNNING" and (row["step"] or 0) > 30)
        lab.rung("cancel", name)
        wait_for(lab, name, lambda row: row["state"] == "CANCELLED")
        assert pace.wait(controller, 30) == 0
    finally:
        controller.kill()
    lab.rung("retry", name, "--set", "lr=0.01")
    controller = lab.controller()
    try:
        wait_for(lab, name, lambda row: row["state"] == "RUNNING")
        second = lab.history(name)["attempts"][1]
        assert second["asked"]["lr"] == 0.01 and second["resumed_step"] >= 30
        lab.rung("cancel", name)
        assert pace.wait(controller, 30) == 0
    finally:
        controller.kill()
    assert lab.history(name)["job"]["state"] == "CANCELLED"


def test_a_job_runs_on_without_its_controller_and_the_next_one_finds_it(lab):
    # Long enough that polling sees it in the state RUNNING.
    name = lab.submit(lab.job("none", "--steps 1500"))
    controller = lab.controller()
    wait_for(lab, name, lambda row: row["state"] == "RUNNING")
    controller.kill()
    controller.wait()
    lab.rung("controller", "--until-idle")
    history = lab.history(name)
    assert history["job"]["state"] == "SUCCEEDED" and len(history["attempts"]) == 1
    assert lab.log(name, 1).count("started with") == 1


def test_launch_follow_runs_the_controller_and_ends_with_the_job(lab):
    out = lab.rung("launch", "-f", str(lab.job("none")))
    assert "SUCCEEDED   finished" in out and "step 120" not in out
    lab.rung("launch", "-f", str(lab.job("none", "--no-such-flag")), expect=1)


@pytest.mark.long
def test_launch_follow_beside_a_controller_only_shows_the_job(lab):
    name = lab.submit(lab.job("never_ends"))
    controller = lab.controller()
    try:
        wait_for(lab, name, lambda row: row["state"] == "RUNNING")
        out = lab.rung("launch", "-f", "--log", str(lab.job("none")))
        assert "step 120" in out and out.rstrip().endswith("none-2 SUCCEEDED: finished")
        lab.rung("cancel", name)
        assert pace.wait(controller, 30) == 0
    finally:
        controller.kill()
