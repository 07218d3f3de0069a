"""Tells open pages what changes: every event of the store once, in order, from the place where a page stopped."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
from anyio.to_thread import run_sync

from rung.runner.web.reading import ReadStore

LOOK_SECONDS = 0.5
# Progress that is no event, such as the step, is shown this often at most.
PROGRESS_SECONDS = 2.0
BATCH = 500
SEQUENCE = re.compile(r"[0-9]{1,18}")


def cursor_of(last_event_id: str | None, after: str | None) -> int | None:
    """Return the event to go on after: the last that the browser has seen, else that of its page; None: the newest."""
    for text in (last_event_id, after):
        if text is not None and SEQUENCE.fullmatch(text):
            return int(text)
    return None


async def changes(path: Path, cursor: int | None) -> AsyncIterator[dict[str, Any]]:
    """Yield the events after the cursor for ever, and now and then that something else has changed."""
    with closing(await run_sync(lambda: ReadStore(path, any_thread=True))) as store:
        seen = await run_sync(store.last_event) if cursor is None else cursor
        # Where the page begins: a browser that is disconnected at once goes on from here, too.
        yield {"id": str(seen), "event": "begin", "data": "{}"}
        counted, shown_at = -1, -PROGRESS_SECONDS
        while True:
            events = await run_sync(store.next_events, seen, BATCH)
            for event in events:
                seen = event.seq
                data = {"job": event.job_id, "attempt": event.attempt, "kind": event.kind}
                yield {"id": str(seen), "event": "job", "data": json.dumps(data)}
            count, now = await run_sync(store.change_count), anyio.current_time()
            if count != counted and now - shown_at >= PROGRESS_SECONDS:
                counted, shown_at = count, now
                yield {"event": "progress", "data": "{}"}
            if len(events) < BATCH:
                await anyio.sleep(LOOK_SECONDS)
