"""Tests the second run of failed tests with CI's script and the real Makefile in a small project."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Fails the given number of times, then passes; it counts its runs in a file.
SHAKY = """
from pathlib import Path

def test_{name}():
    count = Path("{name}.count")
    before = len(count.read_text()) if count.exists() else 0
    count.write_text("x" * (before + 1))
    assert before >= {times}
"""
SAMPLE = "import pytest\npytestmark = [pytest.mark.long, pytest.mark.sample]\n"
# The programs of `make lint`; here they find nothing.
LINTERS = ("ruff", "mypy", "ansible-lint")


class Project:
    """A folder with the Makefile, CI's script, a few tests and fake linters."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("Makefile", "tests/again.py", "pyproject.toml", ".ci/run"):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        self.program("python", f'exec {sys.executable} "$@"')
        for name in LINTERS:
            self.program(name, "exit 0")
        (folder / "requirements.lock").touch()
        (folder / ".venv" / "ready").touch()
        self.write("tests/trackers/tensorboard.txt", "")
        self.write("build/trackers/tensorboard/ready", "")
        (folder / "ansible").mkdir()
        # `make` calls it to prepare the fleet.
        self.write("tests/fleet/__main__.py", "")
        self.shaky("tests/test_plain.py", "plain", 0)
        self.shaky("tests/fleet/test_host.py", "host", 0)
        (folder / "tests" / "security" / "fleet").mkdir(parents=True)
        (folder / "tests" / "slurm").mkdir()
        self.shaky("tests/test_sample.py", "sample", 0, SAMPLE)
        self.shaky("tests/fleet/test_long_host.py", "long_host", 0, SAMPLE)

    def program(self, name: str, script: str) -> None:
        self.write(f".venv/bin/{name}", f"#!/bin/sh\n{script}\n").chmod(0o755)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def shaky(self, file: str, name: str, times: int, head: str = "") -> None:
        """Write a test that fails so many times before it passes."""
        self.write(file, head + SHAKY.format(name=name, times=times))

    def runs(self, name: str) -> int:
        count = self.folder / f"{name}.count"
        return len(count.read_text()) if count.exists() else 0

    def run(self, *words: str, parallel: bool = False) -> tuple[int, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MAKE", "RUNG_"))}
        # There are no hosts, so nothing is installed for them.
        workers = "-pxdist.plugin\\ -n1" if parallel else ""
        env["MAKEFLAGS"] = f"-- SYSTEM= TESTS_NEED= PARALLEL={workers} FLEET_PARALLEL={workers}"
        # Other plugins only take time to load.
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        done = subprocess.run(words, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def lines(out: str, start: str) -> list[str]:
    return sorted(line.removeprefix(start) for line in out.splitlines() if line.startswith(start))


ODD = """
import pytest
from pathlib import Path

@pytest.fixture
def late():
    begun = Path("late.begun")
    if not begun.exists():
        begun.touch()
        raise OSError("not yet")

@pytest.mark.parametrize("word", ["a b::c[0]/d é -m none"])
def test_odd(word, late):
    pass
"""


def test_ci_is_green_and_names_no_test_when_all_pass(project: Project) -> None:
    code, out = project.run(".ci/run")
    assert code == 0, out
    assert [project.runs(name) for name in ("plain", "host", "sample", "long_host")] == [1, 1, 1, 1]
    assert "FLAKY" not in out and "FAILED" not in out
    assert {line.split(" s  ")[1] for line in out.splitlines() if re.match(r" +\d+ s  tests/", line)} == {
        "tests/test_plain.py",
        "tests/fleet/test_host.py",
        "tests/test_sample.py",
        "tests/fleet/test_long_host.py",
    }, "what took how long"


def test_tests_of_any_part_that_fail_and_then_pass_are_named_and_ci_is_green(project: Project) -> None:
    project.shaky("tests/test_shaky.py", "shaky", 1)
    project.shaky("tests/fleet/test_host.py", "host", 1)
    project.shaky("tests/test_sample.py", "sample", 1, SAMPLE)
    project.shaky("tests/fleet/test_long_host.py", "long_host", 1, SAMPLE)
    # Here the set-up fails, and the name of the test contains special characters.
    project.write("tests/test_odd.py", ODD)
    code, out = project.run(".ci/run", parallel=True)
    assert code == 0, out
    assert [line.partition("[")[0] for line in lines(out, "FLAKY: ")] == [
        "tests/fleet/test_host.py::test_host",
        "tests/fleet/test_long_host.py::test_long_host",
        "tests/test_odd.py::test_odd",
        "tests/test_sample.py::test_sample",
        "tests/test_shaky.py::test_shaky",
    ]
    assert "FAILED TWICE" not in out
    assert project.runs("shaky") == 2
    assert project.runs("plain") == 1, "only what failed runs again"


def test_a_test_that_fails_twice_makes_ci_red_and_the_others_still_run(project: Project) -> None:
    project.shaky("tests/test_broken.py", "broken", 9)
    project.shaky("tests/test_shaky.py", "shaky", 1)
    code, out = project.run(".ci/run")
    assert code == 1, out
    assert lines(out, "FAILED TWICE: ") == ["tests/test_broken.py::test_broken"]
    assert lines(out, "FLAKY: ") == ["tests/test_shaky.py::test_shaky"]
    assert project.runs("broken") == 2
    assert project.runs("host") == 1, "a failed test kept the fleet's tests from running"
    assert [project.runs(name) for name in ("sample", "long_host")] == [1, 1]


def test_a_fleet_test_that_fails_twice_makes_the_run_red(project: Project) -> None:
    project.shaky("tests/test_shaky.py", "shaky", 1)
    project.shaky("tests/fleet/test_host.py", "host", 2)
    assert project.run("make", "test")[0] != 0
    code, out = project.run("make", "test-again")
    assert code != 0, out
    assert lines(out, "FLAKY: ") == ["tests/test_shaky.py::test_shaky"]
    assert lines(out, "FAILED TWICE: ") == ["tests/fleet/test_host.py::test_host"]


def crash(project: Project) -> None:
    """End pytest from within before any test."""
    project.write("tests/conftest.py", "import os\ndef pytest_sessionstart(): os._exit(1)\n")


def broken_import(project: Project) -> None:
    project.write("tests/test_unreadable.py", "import no_such_module\n")


def failed_lint(project: Project) -> None:
    project.program("mypy", "exit 1")


@pytest.mark.parametrize("spoil", [crash, broken_import, failed_lint])
def test_a_failure_outside_the_tests_makes_the_run_red(project: Project, spoil: Callable[[Project], None]) -> None:
    # The green report of an earlier run must not count for this run.
    project.write(".pytest_cache/parts/tests.json", json.dumps({"ended": 0, "passed": ["some"], "failed": []}))
    spoil(project)
    assert project.run("make", "check")[0] != 0
    code, out = project.run("make", "test-again")
    assert code != 0, out
    assert "FLAKY" not in out and "so not all tests have run" in out


def test_without_any_run_there_is_nothing_to_run_again(project: Project) -> None:
    code, out = project.run("make", "test-again")
    assert code != 0 and "there is no report of a test run" in out
