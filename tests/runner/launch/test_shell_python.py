"""Tests which Python a job on this machine gets: that of the shell that submits it, whoever starts the job."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import UsageError
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.launch.shell_python import find_python, recorded_python, with_python
from tests.support.pretend import IMAGE

Rung = Callable[..., Any]


def program(folder: Path, name: str, script: str = "exit 0") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return str(folder / name)


def test_the_first_python_on_path_is_found_and_links_are_kept(tmp_path: Path) -> None:
    real = program(tmp_path / "real", "python")
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "python").symlink_to(real)
    later = program(tmp_path / "later", "python")
    assert find_python({"PATH": f"{tmp_path}/none:{tmp_path}/venv:{tmp_path}/later"}) == f"{tmp_path}/venv/python"
    assert find_python({"PATH": f"{tmp_path}/later"}) == later


def test_python3_is_taken_where_there_is_no_python(tmp_path: Path) -> None:
    found = program(tmp_path, "python3")
    assert find_python({"PATH": str(tmp_path)}) == found
    assert find_python({"PATH": str(tmp_path / "empty")}) == ""


def test_the_python_of_rung_counts_only_where_the_shell_has_it(tmp_path: Path) -> None:
    """`.venv/bin/rung` by its path puts nothing on PATH; an active environment does."""
    own = str(Path(sys.executable).parent)
    shell = program(tmp_path, "python")
    assert find_python({"PATH": str(tmp_path)}) == shell
    assert find_python({"PATH": f"{own}:{tmp_path}", "VIRTUAL_ENV": sys.prefix}).startswith(f"{own}/python")


def test_the_recorded_python_comes_first_whatever_the_controller_has() -> None:
    controller = {"PATH": "/other/bin:/usr/bin", "VIRTUAL_ENV": "/other", "HOME": "/h"}
    found = with_python(controller, "/mine/bin/python")
    assert found == {"PATH": "/mine/bin:/other/bin:/usr/bin", "HOME": "/h"}
    same = {"PATH": "/mine/bin:/usr/bin", "VIRTUAL_ENV": "/mine"}
    assert with_python(same, "/mine/bin/python") == same
    assert with_python(controller, "") == controller, "the shell has none"


def test_a_job_without_a_recorded_python_gets_what_it_got_before() -> None:
    assert with_python({"PATH": "/usr/bin"}, None)["PATH"] == f"{sys.prefix}/bin:/usr/bin"
    for active in ({"PATH": "/venv/bin", "VIRTUAL_ENV": "/venv"}, {"PATH": "/conda/bin", "CONDA_PREFIX": "/conda"}):
        assert with_python(active, None) == active


def test_a_job_whose_python_the_shell_lacks_is_refused(tmp_path: Path) -> None:
    python3 = program(tmp_path, "python3")
    spec = JobSpec.model_validate({"name": "a", "run": "python t.py"})
    with pytest.raises(UsageError, match=f"a: run: python is not on the PATH of this shell \\({python3} is\\)"):
        recorded_python(spec, {"PATH": str(tmp_path)})
    own_path = JobSpec.model_validate({"name": "a", "run": "python t.py", "envs": {"PATH": "/x"}})
    assert recorded_python(own_path, {"PATH": str(tmp_path)}) == {"python": python3}
    contained = JobSpec.model_validate({"name": "a", "run": "python t.py", "image": IMAGE})
    assert recorded_python(contained, {"PATH": str(tmp_path)}) == {}


def test_a_job_runs_with_the_python_of_the_shell_that_submits_it_under_a_controller_of_another_shell(
    home: Path, tmp_path: Path, rung: Rung
) -> None:
    mine = program(tmp_path / "mine", "python", 'echo "mine, $1, VIRTUAL_ENV=$VIRTUAL_ENV"')
    program(tmp_path / "other" / "bin", "python", "echo other")
    file = tmp_path / "job.yaml"
    file.write_text("name: a\nrun: python t.py\n")
    assert rung("launch", file, env={"PATH": f"{tmp_path}/mine:{os.environ['PATH']}"}).code == 0
    other = {"PATH": f"{tmp_path}/other/bin:{os.environ['PATH']}", "VIRTUAL_ENV": f"{tmp_path}/other"}
    assert rung("controller", "--until-idle", env=other).code == 0
    assert "mine, t.py, VIRTUAL_ENV=\n" in (home / "jobs" / "a-1" / "attempts" / "1" / "log").read_text()
    shown = json.loads(rung("history", "a", "--json").out)
    assert shown["job"]["python"] == mine
    assert f"\npython {mine}\n" in rung("history", "a").out


def test_a_shell_without_the_python_of_a_job_is_told_so_in_one_line(home: Path, tmp_path: Path, rung: Rung) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: a\nrun: python t.py\n")
    ran = rung("launch", file, env={"PATH": str(tmp_path)})
    assert ran.code == 2 and ran.err.count("\n") == 1 and "python is not on the PATH of this shell: activate" in ran.err
