"""Tests that the page of a job waits for no long log: it is read in a thread, once, and the page says so."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from rung.jobs.model.state import JobState
from rung.recovery.logs.reading import Reading
from rung.runner.series import incremental, read
from rung.runner.series.file_format import MAX_LINE
from rung.runner.series.write import SeriesWriter
from rung.runner.web import curve_reader
from tests.support.web_home import WebHome

LINES = "".join(f"step {step} loss {2 - step / 900:.4f}\n" for step in range(1, 700))


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return what opens the way to a log; until then, whoever reads one waits."""
    opened, rebuild = threading.Event(), read.rebuilt

    def slow(*given: object) -> object:
        assert opened.wait(60)
        return rebuild(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(read, "rebuilt", slow)
    return opened


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many bytes each read of a series gave; reading one in another way fails."""
    counts: list[int] = []
    pread = os.pread

    def counted(file: int, size: int, offset: int) -> bytes:
        data = pread(file, size, offset)
        # The page reads the log in the same way.
        if Path(f"/proc/self/fd/{file}").readlink().name == "series":
            counts.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    monkeypatch.delattr(read, "read_bounded")
    return counts


def test_a_page_does_not_wait_for_a_long_log_and_shows_its_curves_later(
    client: TestClient, web_home: WebHome, gate: threading.Event, monkeypatch: pytest.MonkeyPatch, wait_until: Callable
) -> None:
    monkeypatch.setattr(curve_reader, "AT_ONCE", len(LINES) - 1)
    job = web_home.add("long", JobState.FAILED)
    web_home.attempt(job, 1, LINES, ended_at=time.time())
    series = web_home.paths.attempt(job.id, 1).series
    for _ in range(3):
        page = client.get(f"/jobs/{job.id}").text
        assert '<div id="curves" data-live data-again>' in page
        assert "The log of attempt 1 is being read for its curves." in page and "<figure" not in page
    assert [thread.name for thread in threading.enumerate()].count("curves") == 1
    gate.set()
    wait_until(lambda: "<figure" in client.get(f"/jobs/{job.id}").text)
    page = client.get(f"/jobs/{job.id}").text
    assert "being read" not in page and "data-again" not in page
    assert series.exists(), "it is kept for the next reader"


def test_short_logs_are_read_at_once_as_long_as_they_are_few(
    client: TestClient, web_home: WebHome, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.set()
    monkeypatch.setattr(curve_reader, "AT_ONCE", 2 * len(LINES))
    job = web_home.add("short", JobState.RUNNING)
    for number in (1, 2):
        web_home.attempt(job, number, LINES)
    assert "being read" not in client.get(f"/jobs/{job.id}").text
    gate.clear()
    monkeypatch.setattr(curve_reader, "AT_ONCE", 0)
    assert "The log of attempt 1, 2 is being read" in client.get(f"/jobs/{job.id}").text
    gate.set()


def test_the_log_of_a_running_attempt_is_read_again_later_and_shown_meanwhile(
    client: TestClient, web_home: WebHome, gate: threading.Event, monkeypatch: pytest.MonkeyPatch, wait_until: Callable
) -> None:
    monkeypatch.setattr(curve_reader, "AT_ONCE", 0)
    gate.set()
    job = web_home.add("running", JobState.RUNNING)
    web_home.attempt(job, 1, LINES)
    path = f"/jobs/{job.id}"
    wait_until(lambda: "<figure" in client.get(path).text)
    before = client.get(path).text
    gate.clear()
    with web_home.paths.attempt(job.id, 1).log.open("a") as log:
        log.write("step 700 loss nan\n")
    monkeypatch.setattr(curve_reader, "AGAIN_SECONDS", -1.0)
    assert "<figure" in client.get(path).text and "being read" not in client.get(path).text
    gate.set()
    wait_until(lambda: figure(client.get(path).text) != figure(before))


def test_an_open_page_reads_a_series_again_only_when_it_has_changed(
    client: TestClient, web_home: WebHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = web_home.add("ended", JobState.FAILED)
    web_home.attempt(job, 1, LINES, ended_at=time.time())
    first = client.get(f"/jobs/{job.id}").text
    parsed: list[object] = []
    parse = incremental.parse
    monkeypatch.setattr(incremental, "parse", lambda data: parsed.append(data) or parse(data))
    for _ in range(3):
        assert figure(client.get(f"/jobs/{job.id}").text) == figure(first)
    assert len(parsed) == 1
    series = web_home.paths.attempt(job.id, 1).series
    series.write_bytes(b"".join(series.read_bytes().splitlines(keepends=True)[:40]))
    assert figure(client.get(f"/jobs/{job.id}").text) != figure(first)
    assert len(parsed) == 2


def test_a_refresh_of_a_running_job_reads_only_what_is_new_of_its_series(
    client: TestClient, web_home: WebHome, bytes_read: list[int]
) -> None:
    job = web_home.add("running", JobState.RUNNING)
    web_home.attempt(job, 1, "begins\n")
    place = web_home.paths.attempt(job.id, 1)
    writer, whole = SeriesWriter(place, time.time), 0
    for begin in range(0, 3000, 500):
        for step in range(begin, begin + 500):
            writer.add(step, Reading(loss=2.0 + step % 7, lr=0.001))
        writer.write(live=True)
        before, whole = whole, place.series.stat().st_size
        page = client.get(f"/jobs/{job.id}").text
        # Nothing twice but the last line, which shows that the file is still the same.
        assert whole - before <= sum(bytes_read) <= whole - before + MAX_LINE
        bytes_read.clear()
        assert figure(client.get(f"/jobs/{job.id}").text) == figure(page) and bytes_read == []


def test_a_log_that_cannot_be_read_is_not_tried_for_ever(
    client: TestClient, web_home: WebHome, monkeypatch: pytest.MonkeyPatch, wait_until: Callable
) -> None:
    monkeypatch.setattr(curve_reader, "AT_ONCE", -1)
    job = web_home.add("gone", JobState.FAILED)
    web_home.attempt(job, 1, ended_at=time.time())
    wait_until(lambda: "being read" not in client.get(f"/jobs/{job.id}").text)


def figure(page: str) -> str:
    return page[page.index("<figure") : page.index("</figure>")]
