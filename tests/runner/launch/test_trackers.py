"""Tests the variables for trackers: what each attempt gets, and that what a person has set stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt, Job
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.model.trial import Candidate, Trial
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.load import parse_spec
from rung.runner.launch.request import build_request
from rung.runner.launch.trackers import VARIABLES
from rung.runner.state.next_attempt import purge_step

RUN = "0123456789abcdef0123456789abcdef"
SET = (*VARIABLES, "RUNG_PURGE_STEP")


def variables(attempt: dict[str, Any] | None = None, **fields: Any) -> dict[str, str]:
    """Return what an attempt gets of these variables, in a process and in a container alike."""
    found = []
    for image in (None, f"torch@sha256:{'0' * 64}"):
        spec = JobSpec.model_validate({"name": "gpt", "run": "train", "image": image, **fields})
        job = Job("gpt-1", spec, JobState.LAUNCHING, "", 0.0, 0.0, spec.knobs.knobs())
        known = {"number": 1, "rung": None, "image": image, **(attempt or {})}
        made = Attempt("gpt-1", host="here", asked=Knobs(), because="", **known)
        environ = {"WANDB_API_KEY": "secret", "WANDB_NAME": "of the controller", "PATH": "/bin"}
        env = build_request(job, made, HomePaths(Path("/h")), Path("/o"), environ).env
        assert "secret" not in env.values()
        found.append({name: env[name] for name in SET if name in env})
    assert found[0] == found[1]
    return found[0]


def test_the_first_attempt_has_a_group_and_a_name_and_no_tags() -> None:
    assert variables() == {
        "WANDB_RUN_GROUP": "gpt-1",
        "WANDB_NAME": "gpt-1 attempt 1",
        "MLFLOW_RUN_CONTEXT": '{"rung.job": "gpt-1", "rung.attempt": "1"}',
    }


def test_a_relaunch_says_its_fault_and_its_rung_and_purges_what_it_writes_again() -> None:
    relaunch = {"number": 2, "rung": "lower_lr", "after_fault": "nan_loss", "planned_step": 40, "resumed_from": "s.pt"}
    found = variables(relaunch)
    assert (found["WANDB_NAME"], found["WANDB_TAGS"]) == ("gpt-1 attempt 2", "nan_loss,lower_lr")
    assert json.loads(found["MLFLOW_RUN_CONTEXT"]) == {
        "rung.job": "gpt-1", "rung.attempt": "2", "rung.fault": "nan_loss", "rung.rung": "lower_lr",
    }  # fmt: skip
    assert found["RUNG_PURGE_STEP"] == "40" and "MLFLOW_RUN_ID" not in found
    # From scratch all is written again; after trials, what they have written too.
    assert variables({"number": 2})["RUNG_PURGE_STEP"] == "0"
    assert variables({**relaunch, "purge_step": 30})["RUNG_PURGE_STEP"] == "30"
    # A job that begins at a checkpoint of another one has written nothing before it.
    assert "RUNG_PURGE_STEP" not in variables({"planned_step": 40, "resumed_from": "s.pt"})


def test_the_curves_begin_again_where_trials_right_before_began() -> None:
    def attempt(number: int, step: int | None, trial: Trial | None = None) -> Attempt:
        return Attempt("a-1", number, "here", Knobs(), None, "", planned_step=step, trial=trial)

    trial = Trial(1, 0, (Candidate("lower_lr", Knobs(), 0.1),), 20, 30, 50, 100)
    first, trials = attempt(1, None), [attempt(2, 40, trial), attempt(3, 40, trial)]
    winner = attempt(4, 50)
    assert purge_step(winner, [first, *trials]) == 40
    assert purge_step(attempt(4, 40, trial), [first, *trials]) is None
    assert purge_step(attempt(5, 60), [first, *trials, winner]) is None
    assert purge_step(attempt(3, 20), [first, attempt(2, None, trial)]) == 0


def test_the_name_of_a_trial_says_so() -> None:
    trial = Trial(1, 0, (Candidate("lower_lr", Knobs(), 0.1),), 20, 30, 50, 100)
    found = variables({"number": 3, "rung": "lower_lr", "after_fault": "nan_loss", "trial": trial})
    assert found["WANDB_NAME"] == "gpt-1 attempt 3 trial lower_lr x0.1"
    assert found["WANDB_TAGS"] == "nan_loss,lower_lr,trial"


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_of_the_job_file_stays(name: str) -> None:
    attempt = {"number": 2, "rung": "lower_lr", "mlflow_run": RUN}
    assert variables(attempt, envs={name: "mine"})[name] == "mine"
    assert variables(attempt)[name] != "mine"
    assert name not in variables(attempt, secrets=[name])


@pytest.mark.parametrize("name", ["WANDB_RUN_ID", "WANDB_RESUME"])
def test_who_continues_a_run_of_wandb_in_his_own_way_gets_no_other_name_for_it(name: str) -> None:
    assert not [each for each in variables(envs={name: "x"}) if each.startswith("WANDB")]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, True),
        ({"run": "train --resume {checkpoint}"}, False),
        ({"run_on_resume": "train --resume"}, False),
        ({"envs": {"FROM": "{checkpoint}"}}, False),
        ({"run": "train --out {checkpoint_dir}"}, True),
    ],
)
def test_the_run_of_mlflow_is_kept_only_where_the_command_is_the_same(fields: dict[str, Any], kept: bool) -> None:
    assert ("MLFLOW_RUN_ID" in variables({"number": 2, "mlflow_run": RUN}, **fields)) is kept


@pytest.mark.parametrize("text", ["off", '"off"', "false"])
def test_off_turns_all_of_it_off(text: str) -> None:
    spec = parse_spec(f"name: a\nrun: x\ntrackers: {text}".encode())
    assert spec.trackers == "off"
    assert variables({"number": 2, "planned_step": 4, "mlflow_run": RUN}, trackers="off") == {}
    assert parse_spec(b"name: a\nrun: x\ntrackers: on").trackers == "on"
