"""A run with nothing wrong is left alone, and a person stays in charge of it."""

import json

import pytest

from tests import pace


def test_a_healthy_run_is_one_attempt(lab):
    story = lab.run(lab.job("none", success={"metric": "val_loss", "below": 5.0}))
    assert story["job"]["state"] == "SUCCEEDED"
    assert story["job"]["recoveries"] == 0 and len(story["attempts"]) == 1
    assert story["attempts"][0]["furthest_step"] == 120
    assert story["attempts"][0]["metrics"]["val_loss"] < 5.0


def wait_for(lab, name, wanted):
    def wanted_row():
        row = next(row for row in json.loads(lab.rung("queue", "--json")) if row["id"] == name)
        return row if wanted(row) else None

    return pace.until(wanted_row, 60)


def test_cancel_ends_a_running_job_and_retry_takes_it_up_from_its_checkpoint(lab):
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


def test_a_job_goes_on_without_its_controller_and_is_found_again(lab):
    # Long enough to be seen running by somebody who looks only now and then.
    name = lab.submit(lab.job("none", "--steps 3000"))
    controller = lab.controller()
    wait_for(lab, name, lambda row: row["state"] == "RUNNING")
    controller.kill()
    controller.wait()
    lab.rung("controller", "--until-idle")
    story = lab.history(name)
    assert story["job"]["state"] == "SUCCEEDED" and len(story["attempts"]) == 1
    assert lab.log(name, 1).count("started with") == 1


def test_launch_follow_is_its_own_controller_and_ends_with_the_job(lab):
    out = lab.rung("launch", "-f", str(lab.job("none")))
    assert "step 120" in out and "SUCCEEDED" in out
    lab.rung("launch", "-f", str(lab.job("none", "--no-such-flag")), expect=1)


@pytest.mark.long
def test_launch_follow_beside_a_controller_shows_the_same_and_leaves_the_job_to_it(lab):
    name = lab.submit(lab.job("never_ends"))
    controller = lab.controller()
    try:
        wait_for(lab, name, lambda row: row["state"] == "RUNNING")
        out = lab.rung("launch", "-f", str(lab.job("none")))
        assert "step 120" in out and out.rstrip().endswith("none-2 SUCCEEDED: finished")
        lab.rung("cancel", name)
        assert pace.wait(controller, 30) == 0
    finally:
        controller.kill()
