"""Opens the page of `rung web` in a real Chromium, the one of the system."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the system's Chromium without a window; it ends with the block."""
    program = shutil.which("chromium")
    assert program, "these tests need Chromium; on Debian, as root: make system"
    with sync_playwright() as play:
        # A container often has a small /dev/shm.
        browser = play.chromium.launch(executable_path=program, args=["--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


def complaints(page: Page) -> list[str]:
    """Return a list that fills with what the browser complains about: errors of scripts, of loading, of the policy."""
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found
