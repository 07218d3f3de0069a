"""Tests what a glance from outside shows of a running attempt: output, and its end."""

from __future__ import annotations

from pathlib import Path

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


def test_a_log_that_grows_all_the_time_is_read_at_every_second_look(tmp_path: Path) -> None:
    glance, seen = glance_at(tmp_path), []
    for size in range(10, 80, 10):
        (tmp_path / "log").write_bytes(b"x" * size)
        seen.append(glance.look() == ["job"])
        if seen[-1]:
            glance.has_read("job", size)
    assert seen == [True, False, True, False, True, False, True]
    assert glance.look() == [] and glance.look() == []
    (tmp_path / "log").write_bytes(b"x" * 80)
    assert glance.look() == ["job"], "after a look without anything new it is read at once"


def test_an_end_is_seen_at_the_look_that_a_growing_log_is_left_out(tmp_path: Path) -> None:
    glance = glance_at(tmp_path)
    (tmp_path / "log").write_bytes(b"x" * 10)
    assert glance.look() == ["job"]
    glance.has_read("job", 10)
    (tmp_path / "log").write_bytes(b"x" * 20)
    (tmp_path / "done").touch()
    assert glance.look() == ["job"] and glance.growth("job") is None
