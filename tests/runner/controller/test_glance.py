"""Tests what a glance from outside shows of a running attempt: output, and its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rung.runner.controller.glance import Glance


def glance_at(folder: Path) -> Glance:
    (folder / "alive").touch()
    glance = Glance()
    glance.add("job", 1, folder / "log", (str(folder / "done"), str(folder / "alive")))
    return glance


def test_an_attempt_to_which_nothing_happens_is_not_named(tmp_path: Path) -> None:
    glance = glance_at(tmp_path)
    assert glance.look() == [] and glance.growth("job") == 0


def test_output_is_seen_until_it_was_read(tmp_path: Path) -> None:
    glance = glance_at(tmp_path)
    (tmp_path / "log").write_bytes(b"x" * 70)
    assert glance.look() == ["job"] and glance.growth("job") == 70
    glance.has_read("job", 50)
    assert glance.look() == ["job"] and glance.growth("job") == 20
    glance.has_read("job", 70)
    assert glance.look() == []


def test_a_record_of_the_end_is_seen(tmp_path: Path) -> None:
    glance = glance_at(tmp_path)
    (tmp_path / "done").touch()
    assert glance.look() == ["job"] and glance.growth("job") is None


def test_a_process_that_is_gone_without_a_record_is_seen(tmp_path: Path) -> None:
    glance = glance_at(tmp_path)
    (tmp_path / "alive").unlink()
    assert glance.look() == ["job"] and glance.growth("job") is None


def test_nothing_is_known_of_what_was_forgotten_or_is_another_attempt(tmp_path: Path) -> None:
    glance = glance_at(tmp_path)
    assert glance.knows("job", 1) and not glance.knows("job", 2)
    glance.forget("job")
    assert glance.look() == [] and glance.growth("job") is None and not glance.knows("job", 1)


def looks_at_a_growing_log(glance: Glance, log: Path, looks: int, *, unread: int = 0) -> str:
    """Let a log grow before each look; return at which looks it was to be read: R, or not: -."""
    seen, before = "", log.stat().st_size if log.exists() else 0
    for look in range(1, looks + 1):
        log.write_bytes(b"x" * (before + 10 * look))
        seen += "R" if "job" in glance.look() else "-"
        if seen[-1] == "R":
            glance.has_read("job", before + 10 * look - unread)
    return seen


def among(glance: Glance, folder: Path, attempts: int) -> Glance:
    """Let it look at so many attempts in all."""
    for number in range(attempts - len(glance)):
        glance.add(f"other-{number}", 1, folder / "other", ())
    return glance


@pytest.mark.parametrize(
    ("attempts", "seen"),
    [(1, "RRRRRRR"), (24, "RRRRRRR"), (25, "R-R-R-R"), (49, "R-R-R-R"), (50, "R--R--R"), (1000, "R--R--R")],
)
def test_the_more_attempts_there_are_the_longer_a_log_that_grows_is_left_alone(
    tmp_path: Path, attempts: int, seen: str
) -> None:
    glance = among(glance_at(tmp_path), tmp_path, attempts)
    assert looks_at_a_growing_log(glance, tmp_path / "log", 7) == seen


def test_a_log_that_has_stopped_to_grow_is_read_at_once_when_it_grows_again(tmp_path: Path) -> None:
    glance = among(glance_at(tmp_path), tmp_path, 50)
    assert looks_at_a_growing_log(glance, tmp_path / "log", 1) == "R"
    assert [glance.look() for _ in range(3)] == [[], [], []], "the third look finds that it has not grown"
    assert looks_at_a_growing_log(glance, tmp_path / "log", 3) == "R--"


def test_a_log_of_which_a_part_is_unread_is_not_left_alone(tmp_path: Path) -> None:
    glance = among(glance_at(tmp_path), tmp_path, 50)
    assert looks_at_a_growing_log(glance, tmp_path / "log", 4, unread=1) == "RRRR"


def test_a_log_that_is_left_alone_is_not_asked_for_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    glance = among(glance_at(tmp_path), tmp_path, 50)
    assert looks_at_a_growing_log(glance, tmp_path / "log", 1) == "R"
    asked, stat = [], os.stat
    monkeypatch.setattr(os, "stat", lambda path: asked.append(path) or stat(path))
    log, counts = str(tmp_path / "log"), []
    for _ in range(3):
        glance.look()
        counts.append(asked.count(log))
    assert counts == [0, 0, 1]


def test_an_end_is_seen_at_the_look_that_a_growing_log_is_left_out(tmp_path: Path) -> None:
    glance = among(glance_at(tmp_path), tmp_path, 50)
    assert looks_at_a_growing_log(glance, tmp_path / "log", 1) == "R"
    (tmp_path / "log").write_bytes(b"x" * 20)
    (tmp_path / "done").touch()
    assert glance.look() == ["job"] and glance.growth("job") is None
