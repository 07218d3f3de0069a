"""Tests that a target, a threshold or a setting is no measurement, and that a best value is one."""

from __future__ import annotations

import pytest

from rung.jobs.job import Attempt, Job
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec, Success
from rung.runner.controller.log_watch import LogWatch, shortfall, with_progress

WANTED = Success(metric="val_loss", below=0.6)


def metrics(tmp_path, log: str) -> dict[str, float]:
    (tmp_path / "log").write_text(log)
    watch = LogWatch(tmp_path / "log", Job("a-1", JobSpec(name="a", run=("x",)), JobState.RUNNING, "", 0, 0, Knobs()))
    watch.read_to_end()
    return dict(with_progress(Attempt("a-1", 1, "here", Knobs(), None, ""), watch, WANTED, 1.0).metrics)


@pytest.mark.parametrize(
    "line",
    [
        "not reached: target val_loss: 0.5, patience 3",
        "Target val loss 0.5",
        "stop if val_loss = 0.5",
        "goal for val_loss: 0.5",
        "EarlyStopping: threshold val_loss=0.5, min_delta=0.01",
        "Namespace(lr=0.1, val_loss=0.5, eval_interval=100)",
        "config: {'val_loss': 0.5, 'eval_interval': 100}",
        "python train.py --lr=0.1 --val_loss=0.5",
        "Overriding: eval_interval = 100",
        "eval_interval = 100",
        "eval_iters: 200, val_split: 0.1, test_batch_size=64",
    ],
)
def test_a_target_a_condition_or_a_setting_is_no_measurement(tmp_path, line: str) -> None:
    assert metrics(tmp_path, f"step 1 loss 2.5\n{line}\n") == {}
    assert metrics(tmp_path, f"val_loss: 0.9\n{line}\n") == {"val_loss": 0.9}


@pytest.mark.parametrize(
    "line",
    [
        "best val_loss 0.41",
        "best val_loss: 0.41",
        "val_loss: 0.41 (best)",
        "val_loss = 0.41",
        "final val_loss = 0.41",
        "val_loss: 0.41 (target: 0.5)",
        "target reached, val_loss: 0.41, patience 3",
        "rung| metric val_loss=0.41",
    ],
)
def test_a_measured_value_is_one_also_beside_a_target(tmp_path, line: str) -> None:
    assert metrics(tmp_path, f"{line}\n")["val_loss"] == 0.41


def test_a_target_does_not_meet_the_success_rule(tmp_path) -> None:
    found = metrics(tmp_path, "val_loss: 0.9\nnot reached: target val_loss: 0.5, patience 3\n")
    attempt = Attempt("a-1", 1, "here", Knobs(), None, "", metrics=found)
    assert shortfall(WANTED, attempt) == "val_loss is 0.9, not below 0.6"


def test_other_numbers_beside_a_target_are_still_read(tmp_path) -> None:
    found = metrics(tmp_path, "step 5 target val_loss: 0.5 test_acc: 0.9\n")
    assert found == {"test_acc": 0.9}
