"""Tests that the logs of several hosts become one, with no line lost, split or doubled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.group import merged_log
from rung.runner.engines.group.merged_log import HELD_SECONDS, READ_BYTES, MergedLog


@pytest.fixture
def paths(tmp_path: Path) -> AttemptPaths:
    found = AttemptPaths(tmp_path / "jobs" / "a-1" / "attempts" / "1")
    for node in (0, 1):
        found.of_node(node).folder.mkdir(parents=True)
    return found


def say(paths: AttemptPaths, node: int, text: str) -> None:
    with paths.of_node(node).log.open("a") as log:
        log.write(text)


def merged(paths: AttemptPaths) -> MergedLog:
    return MergedLog(paths, [paths.of_node(node) for node in (0, 1)])


def test_whole_lines_go_on_as_they_come(paths: AttemptPaths) -> None:
    log = merged(paths)
    say(paths, 0, "[rank0]: step=1\n[rank0]: st")
    say(paths, 1, "[rank1]: step=1\n")
    late(log, 0.0)
    assert sorted(paths.log.read_text().splitlines()) == ["[rank0]: step=1", "[rank1]: step=1"]
    say(paths, 0, "ep=2\n[rank0]: 10%\r")
    late(log, 10.0)
    assert paths.log.read_bytes().endswith(b"[rank0]: step=2\n[rank0]: 10%\r")


def test_the_lines_of_the_leading_host_wait_for_those_that_come_later(paths: AttemptPaths) -> None:
    log = merged(paths)
    log.merge(0.0)
    say(paths, 0, "step 14 loss nan\n")
    log.merge(5.0)
    say(paths, 1, "why\n")
    log.merge(5.0 + HELD_SECONDS / 2)
    assert paths.log.read_text() == "why\n"
    log.merge(5.0 + HELD_SECONDS)
    assert paths.log.read_text() == "why\nstep 14 loss nan\n"


def test_of_what_comes_together_every_part_is_as_far_as_the_others_at_any_place(paths: AttemptPaths) -> None:
    log = merged(paths)
    say(paths, 0, "".join(f"a{number}\n" for number in range(100)))
    say(paths, 1, "".join(f"b{number}\n" for number in range(10)))
    late(log, 0.0)
    lines = paths.log.read_text().splitlines()
    places = {line: place for place, line in enumerate(lines)}
    assert len(lines) == 110 and all(places[f"a{number * 10}"] < places[f"b{number}"] for number in range(10))
    assert all(places[f"b{number}"] < places[f"a{number * 10 + 11}"] for number in range(8))


def test_parts_of_different_lengths_stay_together_beyond_one_reading(
    paths: AttemptPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_log, "READ_BYTES", 1000)
    log = merged(paths)
    say(paths, 0, "".join(f"a {number:4}\n" for number in range(2000)))
    say(paths, 1, "".join(f"b {number:4}\n" for number in range(1000)))
    late(log, 0.0)
    lines = paths.log.read_text().splitlines()
    assert len(lines) == 3000
    assert abs(lines.index("a  500") - lines.index("b  250")) < 50


def late(log: MergedLog, now: float) -> None:
    """Merge everything that is there, also that of the leading host."""
    log.merge(now)
    log.merge(now + HELD_SECONDS)


def test_the_last_words_without_an_end_of_line_are_kept(paths: AttemptPaths) -> None:
    log = merged(paths)
    say(paths, 0, "one\nKilled")
    say(paths, 1, "two")
    late(log, 0.0)
    log.merge(0.0, to_end=True)
    assert sorted(paths.log.read_text().splitlines()) == ["Killed", "one", "two"]


def test_a_line_of_any_length_does_not_stop_it(paths: AttemptPaths) -> None:
    log = merged(paths)
    say(paths, 0, "x" * (READ_BYTES + 10) + "\nafter\n")
    late(log, 0.0)
    text = paths.log.read_text()
    assert text.replace("\n", "").endswith("xafter") and text.count("x") == READ_BYTES + 10


def test_the_next_controller_goes_on_where_the_log_is_and_repeats_nothing(paths: AttemptPaths) -> None:
    say(paths, 0, "a\n")
    say(paths, 1, "b\n")
    late(merged(paths), 0.0)
    say(paths, 1, "c\n")
    late(merged(paths), 0.0)
    assert sorted(paths.log.read_text().splitlines()) == ["a", "b", "c"]


def test_what_a_killed_controller_had_written_beyond_its_note_is_written_once(paths: AttemptPaths) -> None:
    say(paths, 0, "a\nb\n")
    late(merged(paths), 0.0)
    cursor = paths.folder / "nodes" / "merged.json"
    assert json.loads(cursor.read_text()) == {"length": 4, "offsets": [4, 0]}
    # Killed after it had written `b`, and before it noted that.
    cursor.write_text(json.dumps({"length": 2, "offsets": [2, 0]}))
    late(merged(paths), 0.0)
    assert paths.log.read_text() == "a\nb\n"


def test_the_logs_of_the_parts_go_when_they_are_in_it(paths: AttemptPaths) -> None:
    say(paths, 0, "a\n")
    log = merged(paths)
    log.merge(0.0, to_end=True)
    log.remove_parts()
    assert not paths.of_node(0).log.exists() and paths.log.read_text() == "a\n"
