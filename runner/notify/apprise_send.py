"""Sends one message with Apprise: runs in a process of its own, which the controller can end at any moment.

The URL and the text come on the standard input, because arguments and variables can be seen by others.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping

MISSING = "Apprise is not installed: install Rung with the extra `notify`, as in pip install 'rung[notify]'"

# What the HTTP library says of a request that was sent and not answered.
UNANSWERED = ("Read timed out", "Connection aborted")


class _Listener(logging.Handler):
    """Keeps what Apprise says when a send fails, and whether the request had been sent by then."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.said: list[str] = []
        self.arrived = False

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            self.said.append(text)
        # Details that may hold the URL are only looked at.
        self.arrived = self.arrived or any(words in text for words in UNANSWERED)


def send(url: str, title: str, body: str) -> Mapping[str, object]:
    """Send a message to one URL; return whether the service accepted it, and what is known if it did not."""
    try:
        import apprise
    except ImportError:
        return {"accepted": False, "detail": MISSING}
    listener, logger = _Listener(), logging.getLogger("apprise")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(listener)
    # Nothing of a service, such as the token of a login, is kept on the disk.
    asset = apprise.AppriseAsset(
        app_id="Rung", app_desc="Rung", app_url="", async_mode=False, storage_mode=apprise.PersistentStoreMode.MEMORY
    )
    service = apprise.Apprise(asset=asset)
    if not service.add(url):
        return {"accepted": False, "detail": "Apprise does not know such a URL"}
    accepted = service.notify(body=body, title=title, body_format=apprise.NotifyFormat.TEXT)
    return {"accepted": bool(accepted), "detail": " ".join(listener.said), "arrived": listener.arrived}


def main() -> None:
    asked = json.load(sys.stdin)
    # Some of Apprise's parts print; the answer is the only line here.
    answer, sys.stdout = sys.stdout, sys.stderr
    json.dump(send(asked["url"], asked["title"], asked["body"]), answer)


if __name__ == "__main__":
    main()
