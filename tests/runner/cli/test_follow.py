"""Tests `launch -f`, `retry -f` and `follow` on real processes: the story, the live line, the log on request."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.terminal import terminal

Rung = Callable[..., Any]
# The first attempt waits at step 5 for a file and fails with a colour in its last line; the second succeeds.
SCRIPT = r"""
echo "Total optimization steps = 20"
if [ "$RUNG_ATTEMPT" = 2 ]; then echo "step 20 loss 0.1"; exit 0; fi
echo "step 4 loss 0.6"; echo "step 5 loss 0.5"
while [ ! -e "$GO" ]; do sleep 0.05; done
printf '\033[31mboom\033[0m \033]0;owned\007here\n'; exit 3
"""
STORY = ["launched", "fault", "decided", "SUCCEEDED"]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def go(tmp_path: Path) -> Path:
    return tmp_path / "go"


@pytest.fixture
def file(tmp_path: Path, go: Path) -> Path:
    path = tmp_path / "job.yaml"
    spec = {"name": "told", "run": ["sh", "-c", SCRIPT], "envs": {"GO": str(go), "DIR": "{checkpoint_dir}"}}
    path.write_text(yaml.safe_dump(spec), encoding="utf-8")
    return path


def labels(out: str) -> list[str]:
    """Return the labels of the story, in order; a live line has no label.

    A short attempt can end before it is seen to run, so that is left out.
    """
    plain = COLOUR.sub("", out).replace("\r\n", "\n")
    found = (re.match(r" +\d+:\d\d  (\w+)  +\S", line.split("\r")[-1]) for line in plain.split("\n"))
    return [match[1] for match in found if match and match[1] != "running"]


def test_a_pipe_gets_the_story_and_neither_the_log_nor_the_live_line(go: Path, file: Path, rung: Rung) -> None:
    go.touch()
    ran = rung("launch", "-f", file)
    assert (ran.code, ran.err) == (0, "")
    assert labels(ran.out) == STORY
    assert "boom here" in ran.out and "step 5 loss" not in ran.out
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", ran.out)
    first, *_, last = ran.out.splitlines()
    assert first == "submitted told-1"
    assert re.fullmatch(r"2 attempts in 0:\d\d; its files here take .*; `rung history told-1` shows every detail", last)


def test_a_terminal_gets_the_live_line_too_and_nothing_of_it_stays(go: Path, file: Path, home: Path) -> None:
    with terminal("launch", "-f", file) as shown:
        # The job waits here until the test lets it go on, so the line comes however slow the machine is.
        shown.read_until("attempt 1: step 5 of 20, loss 0.5")
        go.touch()
        out = shown.read_until("")
    assert labels(out) == STORY
    assert "\x1b[3" in out and "\x1b]" not in out and "\x1b[31mboom" not in out
    # Every row that ends has been written over the blanks of the live line, and none is wider than the terminal.
    rows = [COLOUR.sub("", row) for row in out.split("\r\n")]
    assert [part for row in rows for part in row.split("\r") if len(part) > 80] == []
    assert "step 5 of 20" not in "".join(row.split("\r")[-1] for row in rows)


def test_no_color_takes_the_colours_and_leaves_the_live_line(go: Path, file: Path, home: Path) -> None:
    with terminal("launch", "-f", file, NO_COLOR="1") as shown:
        shown.read_until("attempt 1: step 5 of 20, loss 0.5")
        go.touch()
        out = shown.read_until("")
    assert labels(out) == STORY and "\x1b" not in out


@pytest.mark.parametrize("words", [["--log"], ["-f", "--log"]])
def test_the_log_comes_on_request(words: list[str], go: Path, file: Path, rung: Rung) -> None:
    go.touch()
    ran = rung("launch", *words, file)
    assert ran.code == 0
    assert "   step 5 loss 0.5" in ran.out.splitlines() and "   boom here" in ran.out.splitlines()
    assert ran.out.splitlines()[-1] == "told-1 SUCCEEDED: finished"
    assert labels(ran.out) == []


def test_a_retry_is_followed_from_where_a_person_asked_for_it(tmp_path: Path, home: Path, rung: Rung) -> None:
    script = f'[ -e {tmp_path / "good"} ] && echo "step 1 loss 0.1" && exit 0; echo bad luck; exit 3'
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"name": "again", "run": ["sh", "-c", script]}), encoding="utf-8")
    ran = rung("launch", "-f", file)
    assert ran.code == 1 and labels(ran.out) == ["launched", "fault", "decided", "fault", "FAILED"]
    (tmp_path / "good").touch()
    ran = rung("retry", "-f", "again")
    assert ran.code == 0 and labels(ran.out) == ["retried", "launched", "SUCCEEDED"]
    assert "bad luck" not in ran.out


# rung follow


def test_follow_tells_an_ended_job_as_launch_did_and_starts_nothing(
    go: Path, file: Path, home: Path, rung: Rung
) -> None:
    go.touch()
    launched = rung("launch", "-f", file)
    rung("controller", "--stop")
    told = rung("follow", "told", env={"RUNG_CONTROLLER": "auto"})
    assert (told.code, told.err) == (0, "") and told.out.splitlines() == launched.out.splitlines()[1:]
    logged = rung("follow", "--log", "told-1")
    assert logged.code == 0 and "   step 5 loss 0.5" in logged.out.splitlines() and labels(logged.out) == []
    assert rung("controller", "--status").out.startswith("no controller is running")


def test_follow_is_the_controller_itself_where_none_may_be_in_the_background(go: Path, file: Path, rung: Rung) -> None:
    assert rung("launch", file).code == 0
    go.touch()
    told = rung("follow", "told")
    assert told.code == 0 and labels(told.out) == STORY


def test_follow_ends_as_the_job_does_and_one_that_is_unknown_is_one_line(tmp_path: Path, rung: Rung) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"name": "bad", "run": "false"}), encoding="utf-8")
    assert rung("launch", "-f", file).code == 1
    assert rung("follow", "bad").code == 1
    unknown = rung("follow", "nobody")
    assert (unknown.code, unknown.out) == (2, "") and unknown.err.count("\n") == 1 and "there is no job" in unknown.err
