"""Tests `rung pull` on this machine: what comes, that nothing is overwritten or leads out, and hostile patterns."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rung.runner.storage.pull import matches, parse_pattern
from tests.support.ended_jobs import Shelf

RunRung = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shelf(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Shelf]:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    made = Shelf(home)
    yield made
    made.store.close()


@pytest.fixture
def job(shelf: Shelf) -> str:
    """Return a job with three checkpoints, the newest poisoned, and with results."""
    name = shelf.add("a", checkpoint={"pattern": "step_*.pt"})
    folder = shelf.home / "jobs" / name / "checkpoints"
    folder.mkdir()
    for step, value in ((10, 1.0), (20, 2.0), (30, float("nan"))):
        torch.save({"step": step, "w": torch.full((5,), value)}, folder / f"step_{step}.pt")
    shelf.write(name, "out/deep/scores.json", "{}")
    shelf.write(name, "attempts/1/work/plot.csv", "1,2")
    shelf.write(name, "attempts/1/log.67108864", "later")
    return name


def pulled(run_rung: RunRung, *words: str | Path) -> dict[str, Any]:
    code, out, err = run_rung("pull", *words, "--json")
    assert (code, err) == (0, "")
    return {each["path"]: each for each in json.loads(out)["files"]}


def here(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def test_the_newest_healthy_checkpoint_the_logs_and_the_history_come(job: str, shelf: Shelf, run_rung: RunRung) -> None:
    files = pulled(run_rung, job)
    assert here(Path(job)) == set(files) == {
        "checkpoints/step_20.pt", "logs/attempt-1/log", "logs/attempt-1/log.67108864", "history.json",
    }  # fmt: skip
    original = shelf.home / "jobs" / job / "checkpoints" / "step_20.pt"
    assert files["checkpoints/step_20.pt"]["sha256"] == hashlib.sha256(original.read_bytes()).hexdigest()
    assert (Path(job) / "checkpoints/step_20.pt").read_bytes() == original.read_bytes()
    assert (Path(job) / "checkpoints/step_20.pt").stat().st_mtime == original.stat().st_mtime
    assert json.loads((Path(job) / "history.json").read_text())["summary"]["attempts"] == 1
    code, out, _ = run_rung("pull", job)
    assert code == 0 and out.count("(was there already)") == 4 and "4 files, " in out


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("step_[12]0.pt", {"checkpoints/step_10.pt", "checkpoints/step_20.pt"}),
        ("*.pt", {"checkpoints/step_10.pt", "checkpoints/step_20.pt", "checkpoints/step_30.pt"}),
        ("out", {"output/out/deep/scores.json"}),
        ("out/*/*.json", {"output/out/deep/scores.json"}),
        ("**/scores.json", {"output/out/deep/scores.json"}),
        ("*.csv", {"work/plot.csv"}),
    ],
)
def test_a_pattern_chooses(pattern: str, found: set[str], job: str, run_rung: RunRung, tmp_path: Path) -> None:
    assert set(pulled(run_rung, job, pattern, "--to", tmp_path / "to")) == found == here(tmp_path / "to")


def test_rungs_own_files_are_no_results(job: str, run_rung: RunRung) -> None:
    assert set(pulled(run_rung, job, "**")) == {
        "checkpoints/step_10.pt", "checkpoints/step_20.pt", "checkpoints/step_30.pt", "output/out/deep/scores.json",
        "work/plot.csv",
    }  # fmt: skip


@pytest.mark.parametrize(
    "pattern",
    ["..", "../*", "a/../../b", "/etc/passwd", "/", "", ".", "a\n", "\x1b[2J", "a\\b", "x" * 2000, "**/**/a/**/**/b"],
)
def test_a_pattern_that_leads_out_is_refused_in_one_line(
    pattern: str, job: str, run_rung: RunRung, tmp_path: Path
) -> None:
    code, out, err = run_rung("pull", job, pattern, "--to", tmp_path / "to")
    assert (code, out, len(err.splitlines())) == (2, "", 1) and "\x1b" not in err and "pattern" in err
    assert not (tmp_path / "to").exists()


def test_links_are_not_followed(job: str, shelf: Shelf, run_rung: RunRung, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.json").write_text("secret")
    folder = shelf.home / "jobs" / job
    (folder / "out" / "key.json").symlink_to(tmp_path / "secret" / "key.json")
    (folder / "out" / "all").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "out" / "pipe.json")
    assert set(pulled(run_rung, job, "out/**")) == {"output/out/deep/scores.json"}
    (folder / "attempts/1/work").rename(folder / "attempts/1/before")
    (folder / "attempts/1/work").symlink_to(tmp_path / "secret")
    code, _, err = run_rung("pull", job, "*.json", "--to", tmp_path / "to")
    assert code == 2 and "cannot be listed" in err and not (tmp_path / "to").exists()


def test_a_different_file_is_overwritten_only_by_force(job: str, run_rung: RunRung, tmp_path: Path) -> None:
    to = tmp_path / "to"
    pulled(run_rung, job, "*.pt", "--to", to)
    mine = to / "checkpoints" / "step_20.pt"
    # Another size is seen before anything is fetched, the same size after it.
    for text in (b"mine", b"m" * mine.stat().st_size):
        mine.write_bytes(text)
        (to / "checkpoints" / "step_10.pt").unlink(missing_ok=True)
        code, _, err = run_rung("pull", job, "*.pt", "--to", to)
        assert (code, len(err.splitlines())) == (2, 1) and "checkpoints/step_20.pt" in err and "--force" in err
        assert mine.read_bytes() == text and not (to / "checkpoints" / "step_10.pt").exists(), "all or none"
    assert pulled(run_rung, job, "*.pt", "--to", to, "--force")["checkpoints/step_20.pt"]["new"]
    assert mine.read_bytes() != text and not list(to.glob(".*"))


def test_nothing_is_written_through_a_link(job: str, run_rung: RunRung, tmp_path: Path) -> None:
    to, elsewhere = tmp_path / "to", tmp_path / "elsewhere"
    to.mkdir()
    elsewhere.mkdir()
    (to / "checkpoints").symlink_to(elsewhere)
    code, _, err = run_rung("pull", job, "*.pt", "--to", to, "--force")
    assert code == 2 and "a link is there" in err and not list(elsewhere.iterdir())


def test_a_file_in_the_way_is_one_line(job: str, run_rung: RunRung, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    code, _, err = run_rung("pull", job, "*.pt", "--to", tmp_path / "file")
    assert (code, len(err.splitlines())) == (2, 1)
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "checkpoints").write_text("x")
    code, _, err = run_rung("pull", job, "*.pt", "--to", tmp_path / "to", "--force")
    assert (code, len(err.splitlines())) == (2, 1)


def test_what_is_not_there_is_said(job: str, shelf: Shelf, run_rung: RunRung, tmp_path: Path) -> None:
    code, _, err = run_rung("pull", job, "*.nothing")
    assert (code, err) == (2, f"rung: job {job}: no file matches *.nothing\n")
    assert run_rung("pull", "nobody")[0] == 2
    empty = shelf.add("empty")
    assert set(pulled(run_rung, empty)) == {"logs/attempt-1/log", "history.json"}


def test_checkpoints_in_a_folder_of_the_user_come_too(shelf: Shelf, run_rung: RunRung, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "step_7.pt").write_text("x")
    job = shelf.add("own", checkpoint={"dir": str(mine)})
    assert set(pulled(run_rung, job, "step_*")) == {"checkpoints/step_7.pt"}


@pytest.mark.parametrize(
    ("path", "pattern", "is_match"),
    [
        ("a.pt", "*.pt", True), ("x/a.pt", "*.pt", False), ("x/a.pt", "**/*.pt", True), ("a.pt", "**/*.pt", True),
        ("x/y/a.pt", "x/**", True), ("x/y/a.pt", "x", True), ("xy/a.pt", "x", False), ("x/y/a", "x/*/a", True),
        ("x/y/z/a", "x/*/a", False), ("x/y/z/a", "x/**/a", True), ("x", "x/y", False),
    ],
)  # fmt: skip
def test_stars_stay_in_one_name_and_two_of_them_do_not(path: str, pattern: str, is_match: bool) -> None:
    assert matches(path.split("/"), parse_pattern(pattern)) is is_match
