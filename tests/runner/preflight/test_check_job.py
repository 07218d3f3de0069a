"""Tests `rung check`: it finds what is missing, gives a fix, and changes nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.engines.process import ProcessEngine
from rung.runner.preflight.check_job import CheckResult, check_job, check_machine, planned_job, preview_request
from rung.runner.preflight.rung_preview import LadderPreview
from rung.runner.state.lock import ownership
from rung.runner.state.next_attempt import Placement, asked_by_person

Rung = Callable[..., Any]
PATH = {"PATH": "/usr/bin:/bin"}


def python(folder: Path, script: str) -> str:
    """Return a fake Python of the job that answers at once; importing the real torch takes seconds."""
    made = folder / "python3"
    made.write_text(f"#!/bin/sh\n{script}\n")
    made.chmod(0o755)
    return str(made)


def findings(folder: Path, environ: dict[str, str] | None = None, **fields: Any) -> list[CheckResult]:
    run = [python(folder, "echo 2.0"), "t.py", "{lr}"]
    (folder / "t.py").touch()
    spec = JobSpec.model_validate({"name": "a", "run": run, "knobs": {"lr": 0.1}, **fields})
    return list(check_job(spec, folder, HomePaths(folder / "home"), ProcessEngine(), environ or PATH))


def bad(found: list[CheckResult]) -> list[str]:
    return [finding.what for finding in found if not finding.good]


def test_a_valid_job_has_no_problem(tmp_path: Path) -> None:
    found = findings(tmp_path)
    assert bad(found) == []
    checks = [finding.what for finding in found]
    assert f"command {tmp_path}/python3 is found" in checks
    assert any(what.startswith(f"{tmp_path}/python3 has torch 2.0, which is unsafe") for what in checks)
    assert "rung lower_lr would set lr 0.1 -> 0.01" in checks
    assert any(
        what.startswith("rung native_fp16 would be skipped: the job cannot receive precision") for what in checks
    )
    assert not (tmp_path / "home").exists()


def test_a_rung_whose_values_are_known_only_in_the_run_is_not_called_skipped(tmp_path: Path) -> None:
    knobs, ladder = {"mode": "zero-edit"}, {"ladder": ["lower_lr", "skip_data", "fp32"]}
    checks = [finding.what for finding in findings(tmp_path, run="python t.py", knobs=knobs, recovery=ladder)]
    job = planned_job(JobSpec.model_validate({"name": "a", "run": "t", "knobs": knobs, "recovery": ladder}), 1)
    first = asked_by_person(job, (), (), Placement("localhost"))
    dry_run = LadderPreview(job, first, (HomePaths(tmp_path / "home"), PATH), tmp_path).rungs()
    assert [f"rung {each.rung}: {each.note}" for each in dry_run if each.note] == [
        "rung lower_lr: lr -> 0.1 x the script's own lr, which is known after the first attempt",
        "rung skip_data: the updates around the fault are left out; which ones is known when there is one",
    ]
    assert {f"rung {each.rung}: {each.note}" for each in dry_run if each.note} < set(checks)
    assert "rung fp32 would set precision not set -> fp32" in checks
    flags = [finding.what for finding in findings(tmp_path, recovery=ladder, knobs={})]
    assert "rung lower_lr would be skipped: the job states no lr, and none was seen in it" in flags
    assert any(what.startswith("rung skip_data would be skipped: the job cannot receive skip") for what in flags)


def test_a_missing_command_is_reported(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path)}
    found = [finding for finding in findings(tmp_path, environ, run="no-such-command") if not finding.good]
    assert found[0].what == "command no-such-command is not found on PATH"
    assert "put the command on PATH" in found[0].fix


def test_a_command_beside_the_job_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    (tmp_path / "train.sh").chmod(0o755)
    assert bad(findings(tmp_path, {"PATH": str(tmp_path)}, run="./train.sh {lr}")) == []
    assert bad(findings(tmp_path, {"PATH": str(tmp_path)}, run="./tain.sh {lr}")) == [
        f"command ./tain.sh is not found in {tmp_path}"
    ]


def test_a_missing_script_is_reported(tmp_path: Path) -> None:
    found = findings(tmp_path, run=[str(tmp_path / "python3"), "-u", "train.py", "--lr", "{lr}"])
    assert bad(found) == [f"script train.py is not in {tmp_path}"]
    (tmp_path / "train.py").touch()
    found = findings(tmp_path, run=[str(tmp_path / "python3"), "-u", "train.py", "--lr", "{lr}"])
    assert bad(found) == [] and f"script {tmp_path}/train.py is there" in [finding.what for finding in found]


def test_a_word_that_may_be_no_script_is_not_looked_for(tmp_path: Path) -> None:
    assert bad(findings(tmp_path, run=[str(tmp_path / "python3"), "-m", "tool", "--out", "made.py", "{lr}"])) == []
    launched = [str(tmp_path / "python3"), "-m", "torch.distributed.run", "train.py", "{lr}"]
    assert bad(findings(tmp_path, run=launched)) == [f"script train.py is not in {tmp_path}"]


def test_a_ladder_of_which_every_rung_is_skipped_is_a_problem(tmp_path: Path) -> None:
    (problem,) = [each for each in findings(tmp_path, run="./python3 t.py", knobs={}) if not each.good]
    assert problem.what.startswith("every rung of its ladder would be skipped")
    assert "mode: zero-edit" in problem.fix
    assert bad(findings(tmp_path, run="./python3 t.py", knobs={}, recovery={"ladder": []})) == [], "as asked"
    assert bad(findings(tmp_path, run="./python3 t.py", knobs={"mode": "zero-edit"})) == []


def test_the_python_of_the_shell_is_shown(tmp_path: Path) -> None:
    checks = [each.what for each in findings(tmp_path, {"PATH": f"{tmp_path}:/usr/bin"})]
    assert f"its Python is the one of this shell: {tmp_path}/python3" in checks


def test_a_python_without_torch_is_reported(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    bare = python(tmp_path / "sub", "exit 1")
    found = findings(tmp_path, run=[bare, "t.py", "{lr}"])
    assert bad(found) == [f"{bare} has no torch"]
    assert "install torch" in next(finding.fix for finding in found if not finding.good)


def test_a_missing_secret_is_reported(tmp_path: Path) -> None:
    assert bad(findings(tmp_path, secrets=["T"])) == [
        f"secret T is not set: write it to {tmp_path}/home/secrets/T, or export it for the controller and allow it "
        "with RUNG_SECRETS=T"
    ]
    found = findings(tmp_path, {**PATH, "T": "hush", "RUNG_SECRETS": "T"}, secrets=["T"])
    assert bad(found) == []
    assert "hush" not in str(found)


def test_a_job_that_cannot_run_here_is_reported(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, volumes=["/data:/data"])
    assert not finding.good and "volumes needs an image" in finding.what


def test_a_rung_that_is_not_in_the_ladder_is_listed(tmp_path: Path) -> None:
    checks = [finding.what for finding in findings(tmp_path, recovery={"ladder": ["fp32"]})]
    assert "rung lower_lr is not in this job's ladder" in checks


def test_the_machine_is_checked_and_not_changed(tmp_path: Path) -> None:
    paths = HomePaths(tmp_path / "deep" / "home")
    assert [finding.what for finding in check_machine(paths)][2] == "no controller is running"
    assert list(tmp_path.iterdir()) == []
    paths.home.mkdir(parents=True)
    assert [finding.what for finding in check_machine(paths)][2] == "no controller is running"
    assert list(paths.home.iterdir()) == []
    with ownership(paths):
        assert [finding.what for finding in check_machine(paths)][2] == "a controller is running"


def test_the_exit_code_is_0_without_problems_and_1_with_one(home: Path, tmp_path: Path, rung: Rung) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        yaml.safe_dump({"name": "a", "run": [sys.executable, "-V"], "knobs": {"mode": "zero-edit"}}), encoding="utf-8"
    )
    good = rung("check", "--json", file)
    assert good.code == 0, good
    assert all(set(row) == {"good", "what", "fix"} and row["good"] for row in json.loads(good.out))
    assert any(row["what"].startswith(f"{sys.executable} has torch 2.") for row in json.loads(good.out))
    python(tmp_path, "exit 1")
    file.write_text("name: a\nrun: no-such-command\n", encoding="utf-8")
    ran = rung("check", file, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert (ran.code, ran.err) == (1, "")
    assert "BAD command no-such-command is not found on PATH: correct `run`: put the command on PATH" in ran.out
    assert "BAD every rung of its ladder would be skipped" in ran.out
    assert not home.exists()


@pytest.mark.parametrize("sequence", [1, 7])
def test_the_preview_is_what_the_first_attempt_would_run(tmp_path: Path, sequence: int) -> None:
    spec = JobSpec.model_validate({"name": "A b", "run": "x {lr}", "knobs": {"lr": 0.5}})
    request = preview_request(spec, tmp_path, (HomePaths(tmp_path / "h"), PATH), sequence, Placement("localhost"))
    assert (request.argv, request.cwd) == (("x", "0.5"), tmp_path)
    assert request.paths.folder == tmp_path / "h" / "jobs" / f"a-b-{sequence}" / "attempts" / "1"
