"""Puts the routes together: pages to read, a stream of events, and two actions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from rung.jobs.model.errors import RungError, UsageError
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.terminal_text import clean
from rung.runner.web import actions
from rung.runner.web.access import Access
from rung.runner.web.event_stream import changes, cursor_of
from rung.runner.web.guard import METRICS, Guard
from rung.runner.web.pages import Pages

STATIC = Path(__file__).parent / "static"
MOST_BODY = 16 << 10
# Each open page holds one. A browser opens about six to a machine, several windows some more.
MOST_STREAMS = 64
PING_SECONDS = 15


@dataclass
class Streams:
    """The open streams of events."""

    path: Path
    _open: int = 0

    async def answer(self, request: Request) -> Response:
        if self._open >= MOST_STREAMS:
            return PlainTextResponse("rung: too many pages are open\n", 503)
        cursor = cursor_of(request.headers.get("last-event-id"), request.query_params.get("after"))
        return EventSourceResponse(self._counted(cursor), ping=PING_SECONDS)

    async def _counted(self, cursor: int | None) -> AsyncIterator[dict[str, Any]]:
        self._open += 1
        try:
            async for change in changes(self.path, cursor):
                yield change
        finally:
            self._open -= 1


def make_app(paths: HomePaths, access: Access, pages: Pages | None = None) -> ASGIApp:
    """Return the whole application, with the guard around it."""
    pages = pages or Pages(paths)
    routes = [
        Route("/", pages.jobs),
        Route("/jobs/{job}", pages.job),
        Route("/jobs/{job}/log/{attempt:int}", pages.log),
        Route("/hosts", pages.hosts),
        Route("/ledger", pages.ledger),
        Route("/plots.css", pages.plot_style),
        Route(METRICS, pages.metrics),
        Route("/events", Streams(paths.store).answer),
        Route("/jobs/{job}/cancel", _cancel, methods=["POST"]),
        Route("/jobs/{job}/retry", _retry, methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Guard(Starlette(routes=routes, exception_handlers={RungError: partial(_refused, pages)}), access)


def _refused(pages: Pages, request: Request, error: Exception) -> Response:
    """Answer with the line that the command line would print."""
    message = clean(str(error).partition("\n")[0])
    status = 404 if isinstance(error, UsageError) else 503
    return pages.error(message, status)


async def _cancel(request: Request) -> Response:
    return await _act(partial(actions.cancel, request.path_params["job"]))


async def _retry(request: Request) -> Response:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY:
            return JSONResponse({"error": "the request is too long"}, 413)
    try:
        found = json.loads(body or b"{}")
    except ValueError:
        return JSONResponse({"error": "the request is no JSON"}, 400)
    return await _act(lambda: actions.retry(request.path_params["job"], actions.knobs_of(found)))


async def _act(action: Callable[[], str]) -> Response:
    try:
        return JSONResponse({"said": await run_sync(action)})
    except RungError as error:
        return JSONResponse({"error": clean(str(error).partition("\n")[0])}, 409)
