"""Runs the page's server on the loopback addresses of this machine, and on no others."""

from __future__ import annotations

import errno
import os
import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import ExitStack, suppress
from html import escape
from pathlib import Path
from typing import BinaryIO

import uvicorn

from rung.jobs.model.errors import UsageError
from rung.jobs.model.paths import HomePaths
from rung.runner.web.access import Access
from rung.runner.web.app import make_app

ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
# Pages that are open hold a stream, which never ends by itself.
CLOSING_SECONDS = 2
OPENER = (
    '<!doctype html><meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0; url={link}">'
)


def listen(port: int) -> list[socket.socket]:
    """Return sockets on the loopback of IPv4 and, where there is one, IPv6; port 0: any free port for both."""
    made: list[socket.socket] = []
    with ExitStack() as undo:
        for family, address in ADDRESSES:
            bound = _bind(family, address, port)
            if bound is not None:
                undo.callback(bound.close)
                made.append(bound)
                port = port or int(bound.getsockname()[1])
        undo.pop_all()
    return made


def _bind(family: socket.AddressFamily, address: str, port: int) -> socket.socket | None:
    try:
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return None  # a machine without IPv6
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
        bound.listen(128)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRNOTAVAIL and family == socket.AF_INET6:
            return None
        raise UsageError(f"--port {port}: {address} cannot be used: {error.strerror}; take another port") from None
    return bound


def serve(
    paths: HomePaths,
    port: int,
    announce: Callable[[str], None],
    *,
    browse: bool = False,
    lifeline: BinaryIO | None = None,
) -> None:
    """Serve the page until this process is stopped, or nothing more can come from the `lifeline`.

    `announce` is given the link once it can be opened.
    """
    sockets = listen(port)
    access = Access(int(sockets[0].getsockname()[1]))
    # No access log: the first request of a browser has the token in its address.
    config = uvicorn.Config(
        make_app(paths, access),
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=CLOSING_SECONDS,
    )
    server = uvicorn.Server(config)
    if lifeline is not None:
        threading.Thread(target=_stop_at_end, args=(lifeline, server), name="lifeline", daemon=True).start()
    announce(access.link)
    opener = paths.home / f"web-{access.port}.html"
    try:
        if browse:
            _open_browser(access, opener)
        with suppress(KeyboardInterrupt):
            server.run(sockets=sockets)
    finally:
        opener.unlink(missing_ok=True)


def _stop_at_end(lifeline: BinaryIO, server: uvicorn.Server) -> None:
    while lifeline.read(1):
        pass
    server.should_exit = True


def _open_browser(access: Access, opener: Path) -> None:
    """Open the link in the user's browser. Others can see the words of a command, so these name only a private file."""
    descriptor = os.open(opener, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(OPENER.format(link=escape(access.link)))
    webbrowser.open(opener.as_uri())
