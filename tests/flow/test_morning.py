"""Tests docs/morning.md: its commands, in its order, on a terminal, with the output that it shows."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rung.jobs.model.paths import HomePaths
from rung.runner.top.app import TopApp
from rung.runner.top.overview import OverviewReader
from rung.runner.web.host_survey import HostSurvey
from tests import pace
from tests.support.terminal import BIN, terminal

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "morning.md").read_text(encoding="utf-8")
COLUMNS = 100
# What differs between two mornings: dates, times, how long something took, sizes; and so the width of columns.
VARIES = [
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE"),
    (r"\d\d-\d\d \d\d:\d\d", "TIME"),
    (r"\b\d+:\d\d\b", "0:00"),
    (r"\b\d+s\b", "0s"),
    (r"take [\d.]+ \w+", "take SIZE"),
    (r" +", " "),
]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def commands() -> Iterator[tuple[list[str], str]]:
    """Yield what the page tells to type, each with the output that it shows."""
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            yield line.removeprefix("rung ").split(), output


def same(text: str) -> list[str]:
    """Return the lines of a text without what differs, and without the live line of a terminal."""
    lines = [line.rstrip("\r").split("\r")[-1] for line in text.strip("\n").split("\n")]
    for pattern, instead in VARIES:
        lines = [re.sub(pattern, instead, line) for line in lines]
    return [line.rstrip() for line in lines]


@pytest.fixture
def project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder with the files of the page; the controller in the background ends with the test."""
    monkeypatch.setenv("RUNG_CONTROLLER", "auto")
    folder = tmp_path / "project"
    folder.mkdir()
    (script,) = blocks("python")
    (folder / "train.py").write_text(script, encoding="utf-8")
    for job in blocks("yaml"):
        (folder / f"{job.split()[1]}.yaml").write_text(job, encoding="utf-8")
    yield folder
    subprocess.run([BIN / "rung", "controller", "--stop"], check=False, capture_output=True)


def typed(words: list[str], folder: Path) -> str:
    with terminal(*words, columns=COLUMNS, cwd=folder, NO_COLOR="1") as shown:
        return shown.read_until("")


async def top_lines(home: Path) -> list[str]:
    """Return the screen of `rung top` when it shows the jobs."""
    async with TopApp(OverviewReader(HomePaths(home), HostSurvey(ask=list))).run_test() as pilot:
        patience = pace.Patience(60)
        while True:
            strips = pilot.app.screen._compositor.render_strips()
            lines = ["".join(segment.text for segment in strip) for strip in strips]
            if any("▁" in line for line in lines) or patience.is_over():
                return same("\n".join(lines))
            await pilot.pause(0.05)


def test_the_commands_of_the_page_show_what_it_shows(project: Path, home: Path) -> None:
    evening, morning = [], []
    for words, output in commands():
        (morning if output else evening).append((words, output))
    assert [words[0] for words, _ in evening] == ["launch", "launch"]
    for words, _ in evening:
        typed(words, project)
    # It waits for the controller in the background.
    typed(["controller", "--until-idle"], project)
    assert {words[0] for words, _ in morning} == {"report", "top", "history", "export", "retry"}
    for words, output in morning:
        if words == ["top"]:
            screen = asyncio.run(top_lines(home))
            assert [line for line in screen if line in same(output)] == same(output), screen
        else:
            assert same(typed(words, project)) == same(output), words
