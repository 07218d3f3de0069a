"""Tests that an installed Rung works in any folder, also beside a project with the same folder names.

The wheel is built from a copy of this tree and installed without its dependencies into a fresh virtual environment,
which finds the dependencies where the tests have them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
FLOORS = ("jobs", "recovery", "runner")
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]


def copy_source(source: Path) -> None:
    source.mkdir(parents=True)
    for name in ("pyproject.toml", *FLOORS, "rung"):
        here = ROOT / name
        if here.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(here, source / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(here, source / name)


def build_wheel(folder: Path, source: Path) -> Path:
    subprocess.run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def wheel(once: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    def build() -> Path:
        folder = tmp_path_factory.mktemp("wheel")
        copy_source(folder / "source")
        return build_wheel(folder, folder / "source")

    return once("wheel", build)


@pytest.fixture(scope="session")
def installed(once: Callable[..., Path], wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `rung` of a fresh virtual environment."""

    def install() -> Path:
        folder = tmp_path_factory.mktemp("installed") / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        python = folder / "bin" / "python"
        subprocess.run([*PIP, "--python", str(python), "install", "--no-deps", str(wheel)], check=True)
        # A path that a .pth file names brings modules, but no .pth files of its own: the tests' own Rung stays out.
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
        return folder / "bin" / "rung"

    return once("installed", install)


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs the installed `rung` in a project whose folders are named like Rung's own."""
    project = tmp_path / "project"
    for name in (*FLOORS, "tests"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text("raise ImportError('this is the project, not Rung')\n")

    def call(*words: object, code: int = 0) -> str:
        places = {"RUNG_HOME": tmp_path / "home", "XDG_CONFIG_HOME": tmp_path / "config", "PYTHONPATH": project}
        environ = {**os.environ, **{name: str(path) for name, path in places.items()}}
        environ = {name: value for name, value in environ.items() if name != "RUNG_HOSTS"}
        command = [str(installed), *map(str, words)]
        done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr

    return call


def test_the_wheel_puts_one_name_into_site_packages_and_holds_all_of_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"rung"}
    kept = [path for floor in FLOORS for path in (ROOT / floor).rglob("*") if path.is_file()]
    wanted = {f"rung/{path.relative_to(ROOT).as_posix()}" for path in kept if "__pycache__" not in path.parts}
    assert len(wanted) > 250
    assert wanted - names == set()


def test_what_the_role_of_the_controller_packs_builds_the_same(wheel: Path, tmp_path: Path) -> None:
    tasks = yaml.safe_load(
        (ROOT / "ansible" / "roles" / "controller" / "tasks" / "main.yml").read_text(encoding="utf-8")
    )
    (argv,) = [task["ansible.builtin.command"]["argv"] for task in tasks if task["name"].startswith("Pack the program")]
    values = {"controller_source": ROOT, "controller_archive": tmp_path / "rung.tar"}
    command = [re.sub(r"{{ (\w+) }}", lambda name: str(values[name[1]]), word) for word in argv]
    subprocess.run(command, check=True)
    subprocess.run(["tar", "-xf", values["controller_archive"], "-C", tmp_path], check=True)
    packed = build_wheel(tmp_path, tmp_path / "rung")
    with zipfile.ZipFile(packed) as one, zipfile.ZipFile(wheel) as other:
        assert set(one.namelist()) == set(other.namelist())


def test_the_metadata_says_what_it_is_and_invents_nothing(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        text = archive.read(name).decode("utf-8")
    head, _, body = text.partition("\n\n")
    fields = [line.partition(": ")[0] for line in head.splitlines()]
    assert {"Name", "Version", "Summary", "Requires-Python", "Classifier", "Keywords"} <= set(fields)
    assert not {"License", "License-Expression", "Project-URL", "Home-page"} & set(fields)
    assert "](" not in body, "a link into the repository leads nowhere from here"


def test_the_commands_work_beside_folders_of_the_same_names(run: Callable[..., str], tmp_path: Path) -> None:
    log, script = tmp_path / "train.log", tmp_path / "train.py"
    log.write_text("step 1 loss 1.0\nRuntimeError: value cannot be converted to type at::Half without overflow\n")
    script.write_text("import torch\nscores = torch.zeros(3).half()\nscores.masked_fill_(scores > 0, -1e9)\n")
    assert "launch" in run("--help")
    assert "fp16_overflow" in run("explain", log)
    assert "masked_fill" in run("doctor", script, code=1)
    assert json.loads(run("schema"))["title"] == "JobSpec"


def test_a_process_job_runs_and_its_code_comes_from_the_wheel(run: Callable[..., str], tmp_path: Path) -> None:
    script = "import rung_inside; rung_inside.metric(1, val_loss=0.5); print('from', rung_inside.__file__)"
    job = {"name": "installed", "run": ["python3", "-c", script], "knobs": {"mode": "inside"}}
    (tmp_path / "project" / "job.yaml").write_text(json.dumps(job))
    printed = run("launch", "-f", "job.yaml")
    assert "submitted installed-1" in printed and "SUCCEEDED" in printed
    assert "site-packages/rung/jobs/inside/rung_inside" in run("logs", "installed-1")


def test_the_list_of_hosts_is_among_the_settings_of_the_user(run: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "config" / "rung" / "hosts.yml"
    assert str(path) in run("hosts")
    path.parent.mkdir(parents=True)
    path.write_text("all: {hosts: {titan: {rung_jmp: a}}}\n")
    run("hosts", code=2)


def test_the_demo_without_torch_is_one_line_and_makes_nothing(run: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "project" / "sitecustomize.py").write_text("import sys; sys.modules['torch'] = None\n")
    (said,) = run("demo", code=2).splitlines()
    assert said.startswith("rung: rung demo: neither `python` of this shell nor the Python of Rung has torch")
    assert not (tmp_path / "home").exists()


@pytest.mark.long
def test_the_demo_runs_as_installed_and_writes_nothing_beside_its_jobs(
    run: Callable[..., str], installed: Path, tmp_path: Path
) -> None:
    (catalog,) = installed.parents[1].glob("lib/python*/site-packages/rung/jobs/catalog")
    before = sorted(catalog.rglob("*"))
    told = run("demo")
    assert told.count("SUCCEEDED") == 2 and "trials      lower_lr" in told and "The demo took" in told
    assert f"MiB to {tmp_path / 'home'}" in told
    assert sorted(catalog.rglob("*")) == before
