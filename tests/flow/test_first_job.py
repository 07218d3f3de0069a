"""Tests the path of a new user: the commands of docs/first-job.md, word for word, on three scripts nobody edited.

Each script is as a user would write it, and fails in FP16 by itself. The tree of Rung is installed by the page's own
first command into a fresh virtual environment, which finds the dependencies where the tests have them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import pace

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "first-job.md"
SCRIPTS = Path(__file__).parent / "first_jobs"
# The page says what these two are: the folder of Rung, and the folder with the user's script.
TREE, PROJECT = "rung", "my-project"


@dataclass(frozen=True)
class Case:
    script: str
    fault: str
    rung: str
    # The script's own file or folder that the relaunch goes on from.
    checkpoint: str


CASES = [
    Case("plain_loop", "fp16_overflow", "clamp_constants", r"ckpt\.rung-step-80\.pt"),
    Case("transformers_trainer", "nan_loss", "fp32_modules", r"checkpoint-\d+"),
    Case("lightning_module", "nan_loss", "fp32_modules", r"epoch=0-step=\d+\.ckpt"),
]


def commands() -> list[str]:
    """Return what the page tells a new user to type, in its order."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def split_commands() -> tuple[str, list[str]]:
    """Return the command that installs Rung, and those of the first job."""
    install, *rest = commands()
    assert install.startswith("pip install") and rest[0] == f"cd {PROJECT}"
    assert [line.split()[:2] for line in rest[1:]] == [
        ["rung", word] for word in ("init", "check", "launch", "history")
    ]
    return install, rest


def environment(venv: Path) -> dict[str, str]:
    """Return the environment of a person who has activated a virtual environment, without settings of Rung."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RUNG_") and name != "PYTHONPATH"}
    return {**kept, "VIRTUAL_ENV": str(venv), "PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}


@pytest.fixture(scope="session")
def venv(once: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment in which the page's first command has installed Rung."""

    def install() -> Path:
        folder = tmp_path_factory.mktemp("first-job")
        venv = folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        (packages,) = venv.glob("lib/python*/site-packages")
        # A path that a .pth file names brings modules, but no .pth files of its own: the tests' own Rung stays out.
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
        # The venv module of this Python brings a setuptools that is too old to build Rung.
        for name in ("setuptools", "pkg_resources", "_distutils_hack"):
            shutil.rmtree(packages / name, ignore_errors=True)
        (packages / "distutils-precedence.pth").unlink(missing_ok=True)
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        for name in ("jobs", "recovery", "runner", "rung"):
            shutil.copytree(ROOT / name, folder / TREE / name, symlinks=True, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", folder / TREE)
        # No network: the dependencies are there, and so is what builds the package.
        offline = {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        done = pace.run(
            ["bash", "-ec", split_commands()[0]],
            cwd=folder,
            env={**environment(venv), **offline, "PIP_QUIET": "1"},
            capture_output=True,
            text=True,
            usual=120,
        )
        assert done.returncode == 0, done.stderr
        return venv

    return once("first-job", install)


# `make test` runs one of them; the others are long.
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.script, marks=[pytest.mark.long][: bool(number)]) for number, case in enumerate(CASES)],
)
def test_the_commands_of_the_page_recover_a_script_nobody_edited(case: Case, venv: Path, tmp_path: Path) -> None:
    source = (SCRIPTS / f"{case.script}.py").read_text(encoding="utf-8")
    assert "rung" not in source.lower()
    (tmp_path / PROJECT).mkdir()
    script = tmp_path / PROJECT / "train.py"
    script.write_text(source, encoding="utf-8")
    env = {**environment(venv), "RUNG_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    typed = "\n".join(split_commands()[1])
    done = pace.run(
        ["bash", "-ec", typed],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        usual=180,
        progress=lambda: pace.newest_change(tmp_path / "home"),
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert script.read_text(encoding="utf-8") == source
    shown = subprocess.run(
        [venv / "bin" / "rung", "history", "train", "--json"], env=env, capture_output=True, text=True, check=True
    )
    history = json.loads(shown.stdout)
    first, second = history["attempts"]
    assert history["job"]["state"] == "SUCCEEDED" and first["fault"]["kind"] == case.fault, done.stdout
    assert second["rung"] == case.rung
    assert re.fullmatch(case.checkpoint, second["resumed_from"])
    assert second["resumed_step"] == second["planned_step"] > 0 and second["not_resumed"] is None
    assert "recovered   the loss fell" in done.stdout


def test_the_page_shows_the_job_file_that_the_plain_script_gets(tmp_path: Path) -> None:
    shutil.copy(SCRIPTS / "plain_loop.py", tmp_path / "train.py")
    rung = Path(sys.executable).parent / "rung"
    done = subprocess.run(
        [rung, "init", "--print", "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    shown = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert done.stdout in shown
