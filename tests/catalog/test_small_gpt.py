"""Tests small-gpt: its lr is a hundred times too high, trials find the right one, and the run ends as well."""

import sys

import pytest

from tests import pace
from tests.catalog.conftest import CATALOG, metric

NAME = "small-gpt"
SCRIPT = CATALOG / NAME / "train.py"


def train(folder, *options):
    """Run the script as a person would, without Rung, and return its last line."""
    words = [sys.executable, str(SCRIPT), "--out", str(folder), *options]
    done = pace.run(words, capture_output=True, text=True, usual=300, check=True)
    return done.stdout.splitlines()[-1]


def assert_trials_cure_it(lab, options=""):
    story = lab.run(lab.catalog(NAME, options))
    job, last = story["job"], story["attempts"][-1]
    assert job["state"] == "SUCCEEDED", job["reason"]
    assert last["verdict"] == "recovered", last["verdict_why"]

    tables = [event["data"]["table"] for event in story["events"] if event["kind"] == "trials"]
    winners = [row["rung"] for table in tables for row in table if row["verdict"] == "won"]
    assert winners and winners[0].startswith("lower_lr "), tables
    text = lab.rung("history", NAME)
    assert "MS A STEP" in text and "won the trials with a loss of" in text

    healthy = lab.run(lab.catalog(NAME, f"{options} --fixed"))
    assert [(each["fault"], each["trial"]) for each in healthy["attempts"]] == [(None, None)], "it was to be left alone"
    assert metric(story) <= 1.1 * metric(healthy)


# The other tests here are of the same job and script.
@pytest.mark.long
@pytest.mark.sample
def test_trials_find_the_right_lr_and_the_run_ends_as_well_as_with_it_from_the_start(lab):
    assert "rung" not in SCRIPT.read_text().lower()
    assert_trials_cure_it(lab)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_trials_find_the_right_lr_with_another_seed_too(lab, seed):
    assert_trials_cure_it(lab, f"--seed {seed}")


@pytest.mark.long
def test_without_rung_the_script_ends_far_above_the_goal_without_an_error(tmp_path):
    assert float(train(tmp_path).removeprefix("val_loss: ")) > 1.5


@pytest.mark.long
def test_the_script_resumes_from_its_checkpoint_as_if_it_had_not_stopped(tmp_path):
    whole = train(tmp_path, "--fixed")
    assert train(tmp_path, "--fixed", "--resume", str(tmp_path / "step_900.pt")) == whole
    assert train(tmp_path, "--fixed", "--seed", "1", "--resume", str(tmp_path / "step_900.pt")) != whole
