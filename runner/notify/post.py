"""Sends a message from a process of its own, within a time limit, and says what the service answered."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from urllib.parse import unquote

from rung.jobs.model.terminal_text import clean
from rung.runner.notify.messages import HIDDEN
from rung.runner.notify.settings import Target

# -P: no module is taken from the folder where it is started.
PROGRAM = ("-P", "-m", "rung.runner.notify.apprise_send")
# Apprise gives a service four seconds to connect and four for each answer; some need several.
SEND_SECONDS = 30.0
# A send that has begun may end, so that its result is recorded, although the controller is asked to stop.
CLOSING_SECONDS = 3.0
LOOK_SECONDS = 0.1
LONGEST_DETAIL = 300
PARTS = re.compile(r"[/:@?&=#+,;\s]+")


@dataclass(frozen=True)
class Answer:
    """How a send ended. `arrived`: it was not accepted, but the message may have arrived all the same."""

    accepted: bool
    detail: str = ""
    arrived: bool = False


def post(target: Target, text: str, closing: threading.Event, limit: float = SEND_SECONDS) -> Answer:
    """Send a text to a target. Its first line is the title."""
    title, _, body = text.partition("\n")
    asked = json.dumps({"url": target.url, "title": title, "body": body or title}).encode()
    try:
        process = subprocess.Popen(
            [sys.executable, *PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Ctrl-C in the terminal of a controller does not break off a send that has begun.
            start_new_session=True,
        )
    except OSError as error:
        return Answer(False, f"no process could be started to send it: {error.strerror}")
    with process:
        output = _output(process, asked, closing, limit)
    if output is None:
        ended = "the controller ended before the service answered" if closing.is_set() else ""
        return Answer(False, ended or f"no answer within {limit:.0f} s", arrived=True)
    try:
        said = json.loads(output)
        accepted, detail = bool(said["accepted"]), str(said["detail"])
    except (ValueError, TypeError, KeyError):
        return Answer(False, f"the process that sends ended with exit code {process.returncode}", arrived=True)
    if accepted:
        return Answer(True)
    return Answer(False, without_tokens(detail or "it was not accepted", target), arrived=bool(said.get("arrived")))


def _output(process: subprocess.Popen[bytes], asked: bytes, closing: threading.Event, limit: float) -> bytes | None:
    """Return what the process printed; None if it did not end in time, and was killed."""
    ends_at, given = time.monotonic() + limit, False
    while True:
        try:
            return process.communicate(None if given else asked, timeout=LOOK_SECONDS)[0]
        except subprocess.TimeoutExpired:
            given = True
            if closing.is_set():
                ends_at = min(ends_at, time.monotonic() + CLOSING_SECONDS)
                closing = threading.Event()
            if time.monotonic() >= ends_at:
                process.kill()
                process.communicate()
                return None


def without_tokens(detail: str, target: Target) -> str:
    """Return what a service said without anything of its URL but the scheme and a host that is no token."""
    shown = target.service
    whole = target.url.partition("://")[2]
    parts = {part for text in (whole, unquote(whole)) for part in (text, *PARTS.split(text))}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) > 2 and part.lower() not in shown:
            detail = re.sub(re.escape(part), HIDDEN, detail, flags=re.IGNORECASE)
    return clean(" ".join(detail.split()))[:LONGEST_DETAIL]


def send_test(target: Target, machine: str) -> Answer:
    """Send a message to a target which shows that it works."""
    text = f"Rung: a test message\nsent from {machine} by: rung notify --test {target.name}"
    return post(target, text, threading.Event())
