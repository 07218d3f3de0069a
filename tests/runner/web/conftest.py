"""Gives the tests of the page a home with jobs, and a client that has the token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from rung.runner.web.access import Access
from rung.runner.web.app import make_app
from rung.runner.web.host_survey import HostSurvey
from rung.runner.web.pages import Pages
from tests.support.web_home import WebHome

ORIGIN = "http://127.0.0.1:8321"


@pytest.fixture
def web_home(home: Path) -> Iterator[WebHome]:
    with closing(WebHome(home)) as made:
        yield made


@pytest.fixture
def access() -> Access:
    return Access(8321)


@pytest.fixture
def stranger(web_home: WebHome, access: Access) -> TestClient:
    """Return a client without the token."""
    pages = Pages(web_home.paths, HostSurvey(ask=list))
    return TestClient(make_app(web_home.paths, access, pages), base_url=ORIGIN, follow_redirects=False)


@pytest.fixture
def client(stranger: TestClient, access: Access) -> TestClient:
    """Return a client that has exchanged the token for its cookie."""
    assert stranger.get("/", params={"token": access.token}).status_code == 303
    return stranger


@pytest.fixture
def post(client: TestClient) -> Callable[..., tuple[int, dict[str, str]]]:
    """Return a function that sends what our own page would send."""

    def send(path: str, **knobs: str) -> tuple[int, dict[str, str]]:
        answer = client.post(path, json={"knobs": knobs}, headers={"origin": ORIGIN, "sec-fetch-site": "same-origin"})
        return answer.status_code, answer.json()

    return send
