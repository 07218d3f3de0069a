"""Tests that a job file gets only secrets that the user allowed. In 0.1.0 it could take any variable."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import HomePaths
from rung.runner.launch.request import find_secrets

Rung = Callable[..., Any]


@pytest.mark.parametrize("allowed", [None, "", " ", "OTHER", "AWS_SECRET_ACCESS_KEY_2", "aws_secret_access_key"])
def test_a_variable_that_is_not_allowed_is_refused_with_what_to_do(tmp_path: Path, allowed: str | None) -> None:
    name = "AWS_SECRET_ACCESS_KEY"
    environ = {name: "hush", **({"RUNG_SECRETS": allowed} if allowed is not None else {})}
    with pytest.raises(EngineError) as raised:
        find_secrets((name,), HomePaths(tmp_path), environ)
    assert str(raised.value) == (
        f"secret {name}: no job may have this variable of the controller: allow it with RUNG_SECRETS={name} "
        f"(several with commas), or write the value to {tmp_path}/secrets/{name}"
    )
    assert "hush" not in str(raised.value)


def test_the_list_and_the_file_give_permission(tmp_path: Path) -> None:
    paths = HomePaths(tmp_path)
    paths.secrets.mkdir()
    (paths.secrets / "B").write_text("from its file\n", encoding="utf-8")
    environ = {"A": "a", "B": "not allowed", "C": "c", "RUNG_SECRETS": " A ,C"}
    assert find_secrets(("A", "B", "C"), paths, environ) == {"A": "a", "B": "from its file", "C": "c"}


def test_a_job_that_takes_a_variable_of_the_controller_fails_and_its_history_says_why(
    home: Path, tmp_path: Path, rung: Rung
) -> None:
    text = f"name: thief\nrun: sh -c 'echo $DATABASE_PASSWORD >{tmp_path}/taken'\nsecrets: [DATABASE_PASSWORD]\n"
    (tmp_path / "job.yaml").write_text(text, encoding="utf-8")
    environ = {"DATABASE_PASSWORD": "hush-81c2"}
    assert rung("launch", "-f", tmp_path / "job.yaml", env=environ).code == 1
    history = json.loads(rung("history", "thief", "--json").out)
    assert history["job"]["state"] == "FAILED"
    assert "allow it with RUNG_SECRETS=DATABASE_PASSWORD" in history["job"]["reason"]
    assert not (tmp_path / "taken").exists()
    assert rung("launch", "-f", tmp_path / "job.yaml", env={**environ, "RUNG_SECRETS": "DATABASE_PASSWORD"}).code == 0
    assert (tmp_path / "taken").read_text(encoding="utf-8") == "hush-81c2\n"
