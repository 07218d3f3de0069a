"""Tests `rung launch --from` on this machine: the new job resumes from a verified checkpoint of the other one."""

import json
from contextlib import closing

import pytest

from rung.runner.state.store import Store
from tests import pace
from tests.flow.conftest import BIN, Lab

# Slow: CI runs these after the others.
pytestmark = [pytest.mark.long, pytest.mark.sample]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Return a lab with a job whose weights are NaN from step 41 on: its checkpoints from step 50 on are poisoned."""
    made = Lab(tmp_path_factory.mktemp("from"))
    history = made.run(made.job("weights_nan", "--log-every 80 --steps 90", recovery={"ladder": []}))
    assert history["job"]["state"] == "FAILED"
    return made


def job_ids(lab):
    with closing(Store(lab.paths.store)) as store:
        return [job.id for job in store.jobs()]


def refused(lab, job, start, *words):
    """Return the line that refuses a start, after a check that it left neither a job nor a copy behind."""
    before = job_ids(lab)
    done = pace.run(
        [BIN / "rung", "launch", str(job), "--from", start, *words],
        env=lab.env,
        capture_output=True,
        text=True,
        usual=120,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert job_ids(lab) == before and not list((lab.folder / "home").glob(".from-*"))
    return done.stderr


def test_the_new_job_resumes_before_the_poisoned_checkpoints_and_leaves_the_other_as_it_is(lab):
    before = {path: path.read_bytes() for path in (lab.folder / "home/jobs/weights-nan-1/checkpoints").iterdir()}
    out = lab.rung("launch", "-f", str(lab.job("none", "--steps 60")), "--from", "weights_nan")
    assert "begins      at step 40 of weights-nan-1" in out
    history = lab.history("none")
    (attempt,) = history["attempts"]
    submitted = history["events"][0]["data"]
    assert submitted["from"] == {"job": "weights-nan-1", "step": 40, "file": "step_40.pt"}
    assert (attempt["resumed_from"], attempt["resumed_step"], attempt["steps_made"]) == ("step_40.pt", 40, 20)
    assert attempt["because"].endswith("it begins at step 40, from step_40.pt")
    assert {path: path.read_bytes() for path in before} == before


def test_a_step_can_be_named_and_a_poisoned_one_is_refused(lab):
    file = str(lab.job("short", "--steps 30"))
    lab.rung("launch", "-f", file, "--from", "weights-nan-1@20")
    assert lab.history("short")["attempts"][0]["resumed_step"] == 20
    assert not list((lab.folder / "home").glob(".from-*"))
    why = "it has no healthy checkpoint of step 60; the one before it is of step 40"
    assert why in refused(lab, file, "weights-nan-1@60")
    assert "it has no healthy checkpoint up to step 5" in refused(lab, file, "weights-nan-1@5")


def test_a_checkpoint_that_the_new_job_would_not_find_is_refused(lab):
    file = lab.job("none", "--steps 30", checkpoint={"pattern": "model-*"})
    assert "step_40.pt does not match checkpoint.pattern of none, model-*" in refused(lab, file, "weights-nan-1")


def test_a_folder_of_the_users_own_is_not_overwritten(lab):
    own = lab.folder / "own"
    own.mkdir()
    (own / "step_40.pt").write_text("of somebody else")
    file = lab.job("own", "--steps 60", checkpoint={"dir": str(own)})
    assert "has a step_40.pt of its own; give another checkpoint.dir" in refused(lab, file, "weights-nan-1")
    assert (own / "step_40.pt").read_text() == "of somebody else"


def test_a_job_that_was_not_started_has_no_checkpoint(lab):
    waiting = lab.submit(lab.job("waiting"))
    assert "it has not been started, so it has no checkpoint" in refused(lab, lab.job("none"), waiting)
    lab.rung("cancel", waiting)


def test_a_start_without_a_job_or_with_a_dry_run_is_one_line(lab):
    file = str(lab.job("none", "--steps 30"))
    lab.rung("launch", file, "--from", "nobody", expect=2)
    lab.rung("launch", file, "--dryrun", "--from", "weights_nan", expect=2)
    blind = lab.folder / "blind.yaml"
    blind.write_text("name: blind\nrun: python regression.py --dir x\n")
    lab.rung("launch", str(blind), "--from", "weights_nan", expect=2)
    assert json.loads(lab.rung("queue", "--name", "blind", "--json")) == []


def test_every_job_of_a_grid_begins_at_the_checkpoint(lab):
    file = str(lab.job("none", "--steps 50"))
    lab.rung("launch", file, "--grid", "lr=0.05,0.01", "--from", "weights-nan-1@40")
    lab.rung("controller", "--until-idle")
    for name, lr in (("none lr=0.05", 0.05), ("none lr=0.01", 0.01)):
        history = lab.history(name)
        (attempt,) = history["attempts"]
        assert history["events"][0]["data"]["from"] == {"job": "weights-nan-1", "step": 40, "file": "step_40.pt"}
        assert (history["job"]["state"], attempt["resumed_step"], attempt["steps_made"]) == ("SUCCEEDED", 40, 10)
        assert attempt["asked"]["lr"] == lr
    assert not list((lab.folder / "home").glob(".from-*"))


def test_a_grid_of_which_one_job_cannot_begin_there_is_refused_as_a_whole(lab):
    file = lab.job("none", "--steps 50")
    said = refused(lab, file, "weights-nan-1", "--grid", "checkpoint.pattern=step_*.pt,model-*")
    assert "step_40.pt does not match checkpoint.pattern of none pattern=model-*, model-*" in said
    blind = lab.folder / "blind.yaml"
    blind.write_text("name: blind\nrun: python regression.py --dir {seed}\n")
    assert "is given no {checkpoint}" in refused(lab, blind, "weights-nan-1", "--grid", "seed=1,2")
