"""Says who may use the page: a random token, this machine's own names, and requests that our own page sends."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field

LOOPBACK = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?")
TOKEN_BYTES = 32
# Nothing but our own script and stylesheet, and nothing inline.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """The token of one `rung web`, and the cookie that it is exchanged for."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES), repr=False)

    @property
    def cookie(self) -> str:
        """The name of the cookie; cookies are shared by all ports of a machine, so the name has the port."""
        return f"rung_{self.port}"

    @property
    def link(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    def admits(self, token: str | None) -> bool:
        return token is not None and secrets.compare_digest(token.encode(), self.token.encode())


def is_loopback(host: str | None) -> bool:
    """Tell whether a request names this machine; a page of another site that points its name here does not."""
    return host is not None and LOOPBACK.fullmatch(host) is not None


def why_refused(host: str, origin: str | None, fetch_site: str | None) -> str | None:
    """Return why a request that changes something is refused; None: our own page sent it."""
    if origin != f"http://{host}":
        return "a change must come from this page itself (Origin)"
    if fetch_site not in (None, "same-origin"):
        return "a change must come from this page itself (Sec-Fetch-Site)"
    return None
