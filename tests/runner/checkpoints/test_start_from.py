"""Tests the text of `--from`, and that no file of the user's own is overwritten.

Whole jobs that begin at a checkpoint of another one are in tests/flow and tests/fleet.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rung.jobs.model.errors import UsageError
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.decide.checkpoint_choice import Checkpoint
from rung.runner.checkpoints.start_from import _refuse_overwriting, parse_start


@pytest.mark.parametrize(
    ("text", "job", "step"),
    [
        ("a", "a", None), ("a-1@500", "a-1", 500), ("me@home", "me@home", None), ("me@home@7", "me@home", 7),
        ("a@", "a@", None), ("@7", "@7", None), ("a@-1", "a@-1", None),
    ],
)  # fmt: skip
def test_the_step_stands_behind_the_job(text: str, job: str, step: int | None) -> None:
    assert parse_start(text) == (job, step)


def test_a_file_of_the_users_own_is_not_overwritten_by_a_version(tmp_path: Path) -> None:
    spec = JobSpec.model_validate({"name": "n", "run": "x", "checkpoint": {"dir": str(tmp_path), "pattern": "ckpt.pt"}})
    version = Checkpoint("ckpt.rung-step-20.pt", 20, 100.0, size=7)
    _refuse_overwriting(version, spec)
    (tmp_path / "ckpt.pt").write_text("another")
    with pytest.raises(UsageError, match=r"has a ckpt\.pt of its own; give another"):
        _refuse_overwriting(version, spec)
    os.utime(tmp_path / "ckpt.pt", (100.0, 100.0))
    _refuse_overwriting(version, spec)
