"""Tests who gets an answer: only who has the token, by a name of this machine, and changes only from our own page."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from rung.jobs.model.state import JobState
from rung.runner.web.access import Access
from rung.runner.web.app import STATIC
from tests.support.web_home import WebHome

ORIGIN = "http://127.0.0.1:8321"
READ = [
    "/",
    "/jobs/a-1",
    "/jobs/a-1/log/1",
    "/hosts",
    "/ledger",
    "/events",
    "/plots.css",
    "/metrics",
    "/nothing",
    "/static/",
    "/?token=wrong",
]
READ += [f"/static/{path.name}" for path in STATIC.iterdir()]
CHANGE = ["/jobs/a-1/cancel", "/jobs/a-1/retry"]
OURS = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}


@pytest.mark.parametrize("path", READ)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_nothing_is_shown_without_the_token(stranger: TestClient, path: str, method: str) -> None:
    answer = stranger.request(method, path)
    assert answer.status_code == 401
    assert method == "HEAD" or answer.text == "rung: open the link with the token that `rung web` printed\n"


@pytest.mark.parametrize("path", CHANGE)
def test_nothing_is_changed_without_the_token(
    stranger: TestClient, web_home: WebHome, access: Access, path: str
) -> None:
    web_home.add("a", JobState.RUNNING)
    assert stranger.post(path, headers=OURS).status_code == 401
    assert stranger.post(path, headers=OURS, params={"token": access.token}).status_code == 401
    assert not web_home.store.job("a-1").cancel_requested


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_a_bearer_token_shows_the_metrics(stranger: TestClient, web_home: WebHome, access: Access) -> None:
    """As Prometheus sends it: without a cookie, and it gets none."""
    web_home.add("a", JobState.RUNNING)
    answer = stranger.get("/metrics", headers=bearer(access.token))
    assert answer.status_code == 200 and "rung_jobs_submitted_total 1" in answer.text
    assert "set-cookie" not in answer.headers
    for header in ("", "Bearer", "Bearer wrong", f"Basic {access.token}", access.token):
        assert stranger.get("/metrics", headers={"authorization": header}).status_code == 401
    assert stranger.get("/metrics", headers={**bearer(access.token), "host": "evil.example"}).status_code == 403


@pytest.mark.parametrize("path", [path for path in READ if path != "/metrics"] + ["/metrics/", "//metrics"])
def test_a_bearer_token_shows_nothing_else(stranger: TestClient, access: Access, path: str) -> None:
    assert stranger.get(f"{ORIGIN}{path}", headers=bearer(access.token)).status_code == 401


@pytest.mark.parametrize("path", [*CHANGE, "/metrics"])
def test_a_bearer_token_changes_nothing(stranger: TestClient, web_home: WebHome, access: Access, path: str) -> None:
    web_home.add("a", JobState.RUNNING)
    assert stranger.post(path, headers={**OURS, **bearer(access.token)}).status_code == 401
    assert not web_home.store.job("a-1").cancel_requested


@pytest.mark.parametrize("cookie", ["", "x", "ä", "token", "A" * 10_000])
def test_a_wrong_cookie_is_no_token(stranger: TestClient, access: Access, cookie: str) -> None:
    assert stranger.get("/", headers={"cookie": f"{access.cookie}={cookie}".encode()}).status_code == 401


def test_the_token_is_exchanged_for_a_cookie_and_leaves_the_address(stranger: TestClient, access: Access) -> None:
    answer = stranger.get("/", params={"token": access.token, "state": "FAILED"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/?state=FAILED")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(answer.headers["set-cookie"].split("; "))
    assert stranger.get("/").status_code == 200


def test_a_link_from_elsewhere_goes_on_from_our_own_page(stranger: TestClient, access: Access) -> None:
    """The browser would not send the cookie along with a redirect that another site began."""
    answer = stranger.get(
        "/hosts", params={"token": access.token, "x": '"><b>'}, headers={"sec-fetch-site": "cross-site"}
    )
    assert answer.status_code == 200
    assert 'content="0; url=/hosts?x=%22%3E%3Cb%3E"' in answer.text and access.token not in answer.text


def test_the_exchange_leads_to_no_other_site(stranger: TestClient, access: Access) -> None:
    answer = stranger.get(f"{ORIGIN}//evil.example/x", params={"token": access.token})
    assert answer.headers["location"] == "/evil.example/x"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:8321", "localhost.evil", "", "[::2]"]
)
def test_a_name_of_another_site_is_refused_also_with_the_token(client: TestClient, access: Access, host: str) -> None:
    for path in ("/", f"/?token={access.token}", "/static/rung.js"):
        answer = client.get(path, headers={"host": host})
        assert answer.status_code == 403 and "set-cookie" not in answer.headers


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9000", "[::1]:8321"])
def test_the_names_of_this_machine_are_answered(client: TestClient, access: Access, host: str) -> None:
    cookie = f"{access.cookie}={access.token}"
    assert client.get("/", headers={"host": host, "cookie": cookie}).status_code == 200


FOREIGN = [
    {},
    {"origin": "null"},
    {"origin": "http://evil.example"},
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "https://127.0.0.1:8321"},
    {"origin": ORIGIN, "sec-fetch-site": "cross-site"},
    {"origin": ORIGIN, "sec-fetch-site": "same-site"},
]


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("path", CHANGE)
def test_a_change_comes_only_from_our_own_page(
    client: TestClient, web_home: WebHome, headers: dict[str, str], path: str
) -> None:
    web_home.add("a", JobState.RUNNING)
    assert client.post(path, headers=headers).status_code == 403
    assert not web_home.store.job("a-1").cancel_requested


@pytest.mark.parametrize("path", CHANGE)
def test_reading_changes_nothing(client: TestClient, web_home: WebHome, path: str) -> None:
    web_home.add("a", JobState.RUNNING)
    assert client.get(path).status_code == 405
    assert not web_home.store.job("a-1").cancel_requested


@pytest.mark.parametrize("path", ["/", "/jobs/none", "/static/rung.js", "/nothing", "/jobs/a-1/cancel"])
@pytest.mark.parametrize("admitted", [True, False])
def test_every_answer_has_the_strict_headers(stranger: TestClient, access: Access, path: str, admitted: bool) -> None:
    cookie = {"cookie": f"{access.cookie}={access.token}"} if admitted else {}
    headers = stranger.get(path, headers=cookie).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';") and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy and "*" not in policy and "data:" not in policy
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert headers["cache-control"] == "no-store"


def test_two_tokens_are_never_the_same_and_not_in_the_text_of_an_object() -> None:
    one, other = Access(1), Access(1)
    assert one.token != other.token and len(one.token) >= 40
    assert one.token not in repr(one)
