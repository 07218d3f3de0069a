"""Checks every request before anything else sees it, and puts the safety headers on every answer."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rung.runner.web.access import HEADERS, Access, is_loopback, why_refused

NO_TOKEN = "rung: open the link with the token that `rung web` printed\n"  # noqa: S105
WRONG_NAME = "rung: this page answers only to 127.0.0.1, localhost and [::1]\n"
# A scraper has no cookie: here, and only here, the token may come as `Authorization: Bearer`.
METRICS = "/metrics"
# The next request comes from our own page, so that the browser sends its SameSite=Strict cookie along.
GO_ON = (
    '<!doctype html><meta http-equiv="refresh" content="0; url={path}">'
    '<link rel="icon" href="/static/icon.svg"><title>Rung</title>'
)


class Guard:
    """An ASGI app around the pages."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no websockets: nothing answers
        answer = self._check(scope) or self._app
        await answer(scope, receive, _with_headers(send))

    def _check(self, scope: Scope) -> Response | None:
        """Return the answer to a request that goes no further; None: it is allowed."""
        headers = Headers(scope=scope)
        host = headers.get("host")
        if host is None or not is_loopback(host):
            return PlainTextResponse(WRONG_NAME, 403)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = next((value for name, value in query if name == "token"), None)
        if scope["method"] == "GET" and self._access.admits(token):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            return self._exchange(_own_path(scope["path"]) + (f"?{rest}" if rest else ""), headers)
        reads = scope["method"] in ("GET", "HEAD")
        if reads and scope["path"] == METRICS and self._access.admits(_bearer(headers.get("authorization"))):
            return None
        if not self._access.admits(cookie_parser(headers.get("cookie", "")).get(self._access.cookie)):
            return PlainTextResponse(NO_TOKEN, 401)
        if reads:
            return None
        refused = why_refused(host, headers.get("origin"), headers.get("sec-fetch-site"))
        return PlainTextResponse(f"rung: {refused}\n", 403) if refused else None

    def _exchange(self, path: str, headers: Headers) -> Response:
        """Give the cookie, and leave the address with the token."""
        answer: Response = RedirectResponse(path, 303)
        if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            answer = HTMLResponse(GO_ON.format(path=escape(path)))
        answer.set_cookie(self._access.cookie, self._access.token, httponly=True, samesite="strict", path="/")
        return answer


def _bearer(header: str | None) -> str | None:
    """Return the token of an Authorization header."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _own_path(path: str) -> str:
    """Return a path that leads to no other site: `//name` would."""
    return "/" + path.lstrip("/\\")


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return sending
