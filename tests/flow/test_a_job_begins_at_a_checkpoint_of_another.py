"""Tests `rung launch --from` on this machine: the new job resumes from a verified checkpoint of the other one."""

import json

import pytest

from tests.flow.conftest import Lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Return a lab with a job whose weights are NaN from step 41 on: its checkpoints from step 50 on are poisoned."""
    made = Lab(tmp_path_factory.mktemp("from"))
    history = made.run(made.job("weights_nan", "--log-every 80 --steps 90", recovery={"ladder": []}))
    assert history["job"]["state"] == "FAILED"
    return made


def test_the_new_job_resumes_before_the_poisoned_checkpoints_and_leaves_the_other_as_it_is(lab):
    before = {path: path.read_bytes() for path in (lab.folder / "home/jobs/weights-nan-1/checkpoints").iterdir()}
    out = lab.rung("launch", "-f", str(lab.job("none", "--steps 60")), "--from", "weights_nan")
    assert "begins      at step 40 of weights-nan-1" in out
    (attempt,) = lab.history("none")["attempts"]
    assert (attempt["resumed_from"], attempt["resumed_step"], attempt["steps_made"]) == ("step_40.pt", 40, 20)
    assert attempt["because"].endswith("it begins at step 40, from step_40.pt")
    assert {path: path.read_bytes() for path in before} == before


def test_a_step_can_be_named_and_a_poisoned_one_is_refused(lab):
    file = str(lab.job("short", "--steps 30"))
    lab.rung("launch", "-f", file, "--from", "weights-nan-1@20")
    assert lab.history("short")["attempts"][0]["resumed_step"] == 20
    lab.rung("launch", file, "--from", "weights-nan-1@60", expect=2)
    assert len(json.loads(lab.rung("queue", "--name", "short", "--json"))) == 1


def test_a_start_without_a_job_or_with_a_dry_run_is_one_line(lab):
    file = str(lab.job("none", "--steps 30"))
    lab.rung("launch", file, "--from", "nobody", expect=2)
    lab.rung("launch", file, "--dryrun", "--from", "weights_nan", expect=2)
    blind = lab.folder / "blind.yaml"
    blind.write_text("name: blind\nrun: python regression.py --dir x\n")
    lab.rung("launch", str(blind), "--from", "weights_nan", expect=2)
    assert json.loads(lab.rung("queue", "--name", "blind", "--json")) == []
