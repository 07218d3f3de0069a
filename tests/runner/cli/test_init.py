"""Tests `rung init`: what it writes and where, that it runs nothing, and one line for whatever it cannot read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.spec.load import load_spec
from rung.runner.preflight.init_job import FILE

FIRST_JOBS = Path(__file__).resolve().parents[2] / "flow" / "first_jobs"
TRAIN = """
import argparse, torch
p = argparse.ArgumentParser()
p.add_argument("--out", default="runs")
args = p.parse_args()
open("it ran", "w")
for step in range(3):
    loss.backward()
    torch.save({"optimizer": o, "step": step}, f"{args.out}/step_{step}.pt")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def test_the_file_is_beside_the_script_and_nothing_is_run_or_stored(project: Path, run_rung: Any, home: Path) -> None:
    code, out, err = run_rung("init", "train.py", "--", "--epochs", "3")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"wrote {FILE}" and out.splitlines()[-1] == "read it, then: rung check job.yaml"
    assert "checkpoints: step_*.pt in a folder of the job's own (train.py:9)" in out
    assert sorted(path.name for path in project.iterdir()) == ["job.yaml", "train.py"] and not home.exists()
    spec = load_spec(project / "job.yaml")
    assert spec.run == ("python", "train.py", "--epochs", "3", "--out", "{checkpoint_dir}")
    assert (spec.name, spec.workdir, spec.knobs.mode) == ("train", ".", "zero-edit")


def test_a_script_below_runs_where_rung_init_ran(project: Path, run_rung: Any, tmp_path: Path) -> None:
    shutil.move(project / "train.py", project / "sub.py")
    (project / "src").mkdir()
    shutil.move(project / "sub.py", project / "src" / "train.py")
    assert run_rung("init", "src/train.py")[0] == 0
    spec = load_spec(project / "src" / "job.yaml")
    assert spec.run[:2] == ("python", "src/train.py") and spec.workdir == ".."
    elsewhere = tmp_path / "elsewhere"
    shutil.move(project / "src", elsewhere)
    assert run_rung("init", "--force", str(elsewhere / "train.py"))[0] == 0
    assert load_spec(elsewhere / "job.yaml").run[:2] == ("python", "train.py")


def test_a_file_that_exists_is_replaced_only_if_asked(project: Path, run_rung: Any) -> None:
    (project / "job.yaml").write_text("mine", encoding="utf-8")
    code, out, err = run_rung("init", "train.py")
    assert (code, out) == (2, "")
    assert err == "rung: job.yaml: exists already; --force replaces it, --output FILE writes another\n"
    assert (project / "job.yaml").read_text(encoding="utf-8") == "mine"
    assert run_rung("init", "train.py", "--output", "other.yaml")[1].startswith("wrote other.yaml")
    code, out, _ = run_rung("init", "train.py", "--print")
    assert code == 0 and yaml.safe_load(out)["name"] == "train"
    assert (project / "job.yaml").read_text(encoding="utf-8") == "mine"
    assert run_rung("init", "train.py", "--force")[0] == 0
    assert load_spec(project / "job.yaml").name == "train"


def test_json_says_the_same(project: Path, run_rung: Any) -> None:
    code, out, err = run_rung("init", "train.py", "--print", "--json")
    shown = json.loads(out)
    assert (code, err) == (0, "") and not (project / "job.yaml").exists()
    assert (shown["file"], shown["written"]) == ("job.yaml", False)
    assert shown["text"] == run_rung("init", "train.py", "--print")[1]
    assert shown["found"][0] == "knobs: set on the script's live objects (zero-edit)" and len(shown["left"]) == 3


def test_force_writes_a_new_file_and_follows_no_link(project: Path, run_rung: Any, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("not ours", encoding="utf-8")
    (project / "job.yaml").symlink_to(other)
    assert run_rung("init", "train.py", "--force")[0] == 0
    assert other.read_text(encoding="utf-8") == "not ours" and not (project / "job.yaml").is_symlink()


BAD = {
    "none.py": ("none.py: cannot be read: No such file or directory; name the Python script that trains", None),
    "notes.txt": ("notes.txt: is not a Python script (.py); name the one that your command runs", b"hello"),
    "broken.py": ("broken.py:2: syntax error: '(' was never closed", b"a = 1\nprint(\n"),
    "latin.py": ("latin.py:1: not UTF-8 text; save it as UTF-8", b"a = '\xe9'\n"),
    "null.py": ("null.py: syntax error: source code string cannot contain null bytes", b"a = 1\x00\n"),
}


@pytest.mark.parametrize(("name", "message", "content"), [(name, *each) for name, each in BAD.items()], ids=BAD)
def test_what_cannot_be_read_is_one_line(
    name: str, message: str, content: bytes | None, project: Path, run_rung: Any
) -> None:
    if content is not None:
        (project / name).write_bytes(content)
    assert run_rung("init", name) == (2, "", f"rung: {message}\n")
    assert not (project / "job.yaml").exists()


def test_folders_pipes_and_huge_files_are_one_line(project: Path, run_rung: Any) -> None:
    os.mkfifo(project / "pipe.py")
    (project / "huge.py").write_text("a = 1\n" * 300_000, encoding="utf-8")
    (project / "folder.py").mkdir()
    for name, said in (("pipe.py", "is not a file"), ("huge.py", "scripts of up to"), ("folder.py", "is a folder")):
        code, out, err = run_rung("init", name)
        assert (code, out) == (2, "") and err.startswith(f"rung: {name}: ") and said in err and err.count("\n") == 1


def test_a_place_that_cannot_be_written_is_one_line(project: Path, run_rung: Any) -> None:
    code, out, err = run_rung("init", "train.py", "--output", "no/such/job.yaml")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "no/such/job.yaml: cannot be written: No such file or directory" in err


def test_control_codes_reach_neither_the_terminal_nor_the_text_of_the_file(project: Path, run_rung: Any) -> None:
    name = "tr\x1b[2Jain.py"
    (project / name).write_text(TRAIN.replace('"--out"', '"--out", help="\x1b]0;x\x07"'), encoding="utf-8")
    code, out, err = run_rung("init", name, "--", "a\x1b[2Jb\nc", "{lr}", "|", "")
    text = (project / "job.yaml").read_text(encoding="utf-8")
    assert (code, err) == (0, "")
    assert all(char == "\n" or char.isprintable() for char in out + text)
    spec = load_spec(project / "job.yaml")
    assert spec.name == "train"
    assert spec.run == ("python", name, "a\x1b[2Jb\nc", "{{lr}}", "|", "", "--out", "{checkpoint_dir}")


def test_arguments_that_no_job_file_can_hold_are_one_line(project: Path, run_rung: Any) -> None:
    code, out, err = run_rung("init", "train.py", "--", "a\x00b")
    assert (code, out, err.count("\n")) == (2, "", 1) and "no job file can be written for it" in err
    assert not (project / "job.yaml").exists()


def test_a_config_file_that_the_arguments_name_is_read(project: Path, run_rung: Any, tmp_path: Path) -> None:
    script = TRAIN.replace('f"{args.out}/step_{step}.pt"', "f\"{config['train']['out']}/step_{step}.pt\"")
    script = script.replace("args = p", "import yaml\nconfig = yaml.safe_load(open('conf.yaml'))\nargs = p")
    (project / "train.py").write_text(script, encoding="utf-8")
    (project / "conf.yaml").write_text("train: {out: runs, lr: 0.1}\n", encoding="utf-8")
    assert run_rung("init", "train.py", "--", "--config", "conf.yaml")[0] == 0
    files = load_spec(project / "job.yaml").knobs.files
    assert {name: dict(keys) for name, keys in files.items()} == {"conf.yaml": {"checkpoint_dir": ("train.out",)}}
    # A file outside of the folder cannot be edited in a copy of it.
    shutil.move(project / "conf.yaml", tmp_path / "conf.yaml")
    code, out, _ = run_rung("init", "train.py", "--force", "--", "--config", "../conf.yaml")
    assert code == 0 and "no checkpoints" in out


NEVER_SAVES = FIRST_JOBS.parent / "trainings" / "never_saves.py"


@pytest.mark.parametrize("script", [*sorted(FIRST_JOBS.glob("*.py")), NEVER_SAVES], ids=lambda path: path.stem)
def test_the_job_file_passes_rung_check(script: Path, project: Path, run_rung: Any, home: Path) -> None:
    shutil.copy(script, project / "train.py")
    assert run_rung("init", "train.py")[0] == 0
    code, out, err = run_rung("check", "job.yaml")
    assert (code, err) == (0, ""), out
    assert "BAD" not in out and "a relaunch resumes" in out and "rung|" not in out
