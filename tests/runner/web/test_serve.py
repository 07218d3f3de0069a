"""Tests the command `rung web`: where it listens, what it prints and keeps, and what it says when it cannot start."""

from __future__ import annotations

import socket
import stat
import subprocess
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from rung.runner.cli.review import web
from rung.runner.web import serve as server
from rung.runner.web.serve import listen
from tests.support.web_home import WebHome


def test_it_listens_on_the_loopback_and_nowhere_else() -> None:
    sockets = listen(0)
    try:
        addresses = [each.getsockname()[:2] for each in sockets]
        assert [address for address, _ in addresses] in (["127.0.0.1", "::1"], ["127.0.0.1"])
        assert len({port for _, port in addresses}) == 1
    finally:
        for each in sockets:
            each.close()


def test_a_port_that_is_taken_is_one_line(run_rung: Callable[..., tuple[int, str, str]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, out, err = run_rung("web", "--port", port)
    assert (code, out) == (2, "")
    assert err == f"rung: --port {port}: 127.0.0.1 cannot be used: Address already in use; take another port\n"


def test_without_its_extra_it_says_how_to_install_it(
    run_rung: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr(web, "NEEDED", ("starlette", "no_such_package"))
    assert run_rung("web") == (
        2,
        "",
        "rung: rung web: no_such_package is not installed; install it with: pip install 'rung[web]'\n",
    )
    assert not home.exists()


def test_the_link_opens_the_page_and_no_log_has_the_token(
    spawn: Callable[..., subprocess.Popen[bytes]], home: Path
) -> None:
    process = spawn("web", "--port", "0")
    assert process.stdout is not None
    link = process.stdout.readline().decode().split()[-1]
    token = link.partition("token=")[2]
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(link.partition("?")[0])
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(link) as answer:
        assert b"No jobs yet" in answer.read() and "token" not in answer.url
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(link.replace(token, "x" * 43))
    process.terminate()
    out, err = process.communicate()
    assert token not in (out + err).decode()
    for file in home.rglob("*"):
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
        assert file.is_dir() or token.encode() not in file.read_bytes()


def test_the_browser_is_given_a_private_file_and_not_the_token(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, int, str]] = []

    def look(address: str) -> bool:
        file = Path(unquote(urlsplit(address).path))
        opened.append((address, stat.S_IMODE(file.stat().st_mode), file.read_text()))
        return True

    links: list[str] = []
    monkeypatch.setattr(webbrowser, "open", look)
    monkeypatch.setattr(server.uvicorn.Server, "run", lambda self, sockets: [each.close() for each in sockets])
    made = WebHome(home)
    made.close()
    server.serve(made.paths, 0, links.append, browse=True)
    ((address, mode, text),) = opened
    assert links[0] in text and "token" not in address and mode == 0o600
    assert not list(home.glob("*.html"))
