"""Tests `rung top` with Textual's own pilot: what it shows of a real store, its keys, hostile text, live changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rich.color import ColorType
from textual.pilot import Pilot

from rung.jobs.job import Job
from rung.jobs.model.event import EventKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.host import Host
from rung.jobs.model.state import JobState
from rung.recovery.logs.reading import Reading
from rung.runner.hosts.survey import GpuState, Report
from rung.runner.series.write import SeriesWriter
from rung.runner.top.app import TopApp
from rung.runner.top.overview import OverviewReader
from rung.runner.web.host_survey import HostSurvey
from tests import pace
from tests.support.web_home import HOSTILE, WebHome

MARKUP = "[red]not red[/red] [link=x]"
Looks = Callable[[Pilot[None]], Awaitable[None]]


def reports() -> list[Report]:
    gpu = Gpu("NVIDIA A100", (8, 0), uuid="GPU-1", memory=40 << 30)
    here = Report(
        Host("titan", "titan"), engine="27.0", gpus=(GpuState(gpu), GpuState(gpu, foreign_processes=("pid 9",)))
    )
    return [here, Report(Host("away", "away"), away="away: connection refused")]


@pytest.fixture
def web_home(home: Path) -> Iterator[WebHome]:
    with closing(WebHome(home)) as made:
        yield made


def screen(pilot: Pilot[None]) -> list[str]:
    """Return the lines that the terminal would show."""
    strips = pilot.app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    """Let the app run until a condition holds."""
    patience = pace.Patience(60)
    while not condition():
        assert not patience.is_over(), "\n".join(screen(pilot))
        await pilot.pause(0.02)


def shows(pilot: Pilot[None], text: str) -> bool:
    return any(text in line for line in screen(pilot))


def run(home: WebHome, looks: Looks, size: tuple[int, int] = (80, 24)) -> TopApp:
    """Open the app, wait until it has read the store and the hosts, and let a test look at it."""
    app = TopApp(OverviewReader(home.paths, HostSurvey(ask=reports)))

    async def opened() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: shows(pilot, "titan"))
            await looks(pilot)

    asyncio.run(opened())
    return app


def with_curve(home: WebHome, job: Job, attempt: int, losses: list[float]) -> None:
    """Write the series of an attempt as the controller does."""
    paths = home.paths.attempt(job.id, attempt)
    paths.log.parent.mkdir(parents=True, exist_ok=True)
    writer = SeriesWriter(paths, time.time)
    for step, loss in enumerate(losses):
        writer.add(step, Reading(loss=loss))
    writer.finish(live=True)


def test_80_by_24_show_every_job_with_its_curve_and_every_gpu_with_its_user(web_home: WebHome) -> None:
    job = web_home.recovered()
    with_curve(web_home, job, 1, [2.0 - step / 100 for step in range(100)])
    web_home.add("done", JobState.SUCCEEDED, "finished")

    async def looks(pilot: Pilot[None]) -> None:
        lines = screen(pilot)
        assert len(lines) == 24 and max(map(len, lines)) <= 80
        assert lines[0] == " 1 running, 1 succeeded"
        assert "nobody watches 1 active job" in " ".join(lines[1:3])
        (header,) = [line for line in lines if line.startswith("JOB")]
        assert header.split() == ["JOB", "STATE", "STEP", "LOSS", "CURVE", "RUNG", "LEFT", "REASON"]
        (row,) = [line for line in lines if line.startswith(job.id)]
        assert row.split()[1:6] == ["RUNNING", "1200/3000", "0.61", "██▇▆▅▄▃▂▁▁", "lower_lr"]
        titan, stranger, away = lines[-4:-1]
        assert titan.split() == ["titan", "0", "NVIDIA", "A100", "40", "GiB", "free"]
        assert stranger.endswith("not ours: pid 9") and away.endswith("does not answer: connection refused")
        assert "q quit" in lines[-1]

    run(web_home, looks)


def test_the_keys_move_open_the_story_lead_back_and_quit(web_home: WebHome) -> None:
    web_home.add("first", JobState.SUCCEEDED, "finished")
    job = web_home.recovered()
    web_home.add("waiting")

    async def looks(pilot: Pilot[None]) -> None:
        await pilot.press("j", "down", "k", "enter")
        await until(pilot, lambda: shows(pilot, "resumed at step 400"))
        lines = screen(pilot)
        assert lines[0] == f"{job.id}  RUNNING" and lines[2] == "attempt 2: step 1200 of 3000, loss 0.61"
        labels = [line.split()[1] for line in lines if line[:6].strip() and ":" in line[:6]]
        assert labels == ["launched", "fault", "checkpoint", "trials", "decided", "recovered"]
        await pilot.press("escape")
        await until(pilot, lambda: shows(pilot, "first-1"))
        await pilot.press("q")

    assert not run(web_home, looks).is_running


def test_a_filter_shows_the_jobs_that_have_all_its_words(web_home: WebHome) -> None:
    web_home.add("quick", JobState.FAILED, "the ladder is used up")
    web_home.add("quack", JobState.FAILED, "the disk is full")
    web_home.add("quiet", JobState.SUCCEEDED, "finished")

    def listed(pilot: Pilot[None]) -> list[str]:
        return [line.split()[0] for line in screen(pilot) if line.startswith(("qui", "qua"))]

    async def looks(pilot: Pilot[None]) -> None:
        assert listed(pilot) == ["quiet-3", "quack-2", "quick-1"]
        await pilot.press("slash", *"FA q")
        await until(pilot, lambda: listed(pilot) == ["quack-2", "quick-1"])
        await pilot.press("space", *"lad", "enter")
        await until(pilot, lambda: listed(pilot) == ["quick-1"] and not shows(pilot, "keep the filter"))
        assert screen(pilot)[0].endswith("only: FA q lad")
        await pilot.press("escape")
        await until(pilot, lambda: len(listed(pilot)) == 3)

    run(web_home, looks)


def test_hostile_text_is_text_in_the_table_and_in_the_story(web_home: WebHome) -> None:
    job = web_home.hostile()
    web_home.add("brackets", JobState.FAILED, f"{MARKUP} {HOSTILE}")

    async def looks(pilot: Pilot[None]) -> None:
        assert shows(pilot, f"{MARKUP} <script>alert(1)</script>red gnp.exe")
        for name in ("brackets-2", job.id):
            lines = screen(pilot)
            assert all(line.isprintable() for line in lines), lines
            await pilot.press("enter")
            await until(pilot, lambda name=name: screen(pilot)[0] == f"{name}  FAILED")
            await until(pilot, lambda: shows(pilot, "<script>alert(1)</script>red"))
            assert all(line.isprintable() for line in screen(pilot)), screen(pilot)
            await pilot.press("escape", "j")

    run(web_home, looks, (130, 24))


def test_an_event_appears_by_itself_and_the_cursor_stays_on_its_job(web_home: WebHome) -> None:
    old = web_home.recovered()

    async def looks(pilot: Pilot[None]) -> None:
        new = web_home.add("newer", JobState.RUNNING, "it has just begun")
        await until(pilot, lambda: shows(pilot, new.id))
        with web_home.store.transaction():
            web_home.store.move(old.id, JobState.RECOVERING, reason="nan_loss at step 1300", at=time.time())
        await until(pilot, lambda: shows(pilot, "RECOVERING"))
        await pilot.press("enter")
        await until(pilot, lambda: screen(pilot)[0] == f"{old.id}  RECOVERING")
        web_home.event(old, EventKind.DECIDED, 2, because="what Rung does about it")
        await until(pilot, lambda: shows(pilot, "what Rung does about it"))

    run(web_home, looks)


def test_it_uses_the_colours_of_the_terminal_alone(web_home: WebHome) -> None:
    web_home.recovered()

    async def looks(pilot: Pilot[None]) -> None:
        for _ in range(2):
            styles = [each.style for strip in pilot.app.screen._compositor.render_strips() for each in strip]
            colours = [colour for style in styles if style for colour in (style.color, style.bgcolor) if colour]
            assert {colour.type for colour in colours} <= {ColorType.DEFAULT, ColorType.STANDARD}
            await pilot.press("enter")
            await until(pilot, lambda: shows(pilot, "launched"))

    run(web_home, looks)


def test_it_writes_nothing_and_says_when_the_store_cannot_be_read(web_home: WebHome) -> None:
    job = web_home.recovered()  # it has logs and no series
    before = {file: file.read_bytes() for file in web_home.paths.home.rglob("*") if file.is_file()}

    async def looks(pilot: Pilot[None]) -> None:
        await pilot.press("enter", "escape")
        now = {file: file.read_bytes() for file in web_home.paths.home.rglob("*") if file.is_file()}
        assert {file for file in before | now if before.get(file) != now.get(file)} <= {
            web_home.paths.store.with_name(f"{web_home.paths.store.name}-shm")
        }
        web_home.paths.store.rename(web_home.paths.store.with_suffix(".away"))
        await until(pilot, lambda: shows(pilot, "not up to date"))
        assert shows(pilot, job.id)
        web_home.paths.store.with_suffix(".away").rename(web_home.paths.store)
        await until(pilot, lambda: not shows(pilot, "not up to date"))

    run(web_home, looks)
