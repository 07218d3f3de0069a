"""Tests the stream of events: it goes on after the last one that was seen, and loses and repeats none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rung.jobs.model.event import EventKind
from rung.runner.web.event_stream import BATCH, changes, cursor_of
from tests.support.web_home import WebHome


async def take(stream: AsyncIterator[dict[str, Any]], last: int) -> list[int]:
    """Return the numbers of the events up to this one, in the order in which they come."""
    found = []
    async for change in stream:
        if change["event"] == "job":
            found.append(int(change["id"]))
        if found and found[-1] == last:
            return found
    return found


def test_a_stream_that_goes_on_after_its_last_event_loses_and_repeats_none(web_home: WebHome) -> None:
    job = web_home.add("a")
    with web_home.store.transaction():
        for number in range(BATCH + 50):
            web_home.store.add_event(job.id, None, EventKind.RETRIED, {"number": number}, at=1.0)
    every = [event.seq for event in web_home.store.events()]

    async def read() -> tuple[list[int], list[int]]:
        first = await take(changes(web_home.paths.store, 0), every[40])
        return first, await take(changes(web_home.paths.store, cursor_of(str(first[-1]), "0")), every[-1])

    first, rest = asyncio.run(read())
    assert first + rest == every


def test_an_event_that_is_written_later_comes_by_itself(web_home: WebHome) -> None:
    web_home.add("a")

    async def read() -> tuple[int, list[int]]:
        stream = changes(web_home.paths.store, None)
        begin = await anext(stream)
        assert begin["event"] == "begin"
        await anext(stream)  # the first look
        web_home.add("b")
        newest = web_home.store.events()[-1].seq
        return int(begin["id"]), await asyncio.wait_for(take(stream, newest), 120)

    begin, found = asyncio.run(read())
    assert found == list(range(begin + 1, found[-1] + 1)) and found


def test_progress_that_is_no_event_is_told_without_a_number(web_home: WebHome) -> None:
    job = web_home.add("a")

    async def read() -> dict[str, Any]:
        stream = changes(web_home.paths.store, None)
        await anext(stream)
        await anext(stream)
        web_home.attempt(job, 1, furthest_step=7)
        return await asyncio.wait_for(anext(stream), 120)

    assert asyncio.run(read()) == {"event": "progress", "data": "{}"}


@pytest.mark.parametrize(
    ("header", "after", "expected"),
    [(None, None, None), ("7", "3", 7), (None, "3", 3), ("", "3", 3), ("x", "-1", None), ("9" * 40, None, None)],
)
def test_the_last_event_that_the_browser_saw_comes_before_that_of_the_page(
    header: str | None, after: str | None, expected: int | None
) -> None:
    assert cursor_of(header, after) == expected
