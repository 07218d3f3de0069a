"""Owns how the fleet runs programs and waits: a failed program tells its last words, every wait is for a condition."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

# A loaded machine may be slow; a condition that takes longer than this will never come.
PATIENCE = 120.0


class FleetError(Exception):
    """Something the fleet could not do, in one line for a person."""


def run(*words: object, input: bytes | None = None, env: dict[str, str] | None = None, check: bool = True) -> str:
    """Run a program to its end and return what it printed; with its last words as the error when it fails."""
    command = [str(word) for word in words]
    done = subprocess.run(command, input=input or b"", env=env, capture_output=True, timeout=900, check=False)
    if check and done.returncode:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-2000:]
        raise FleetError(f"{' '.join(command[:8])} failed with {done.returncode}: {said}")
    return done.stdout.decode("utf-8", "replace")


def wait_for(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Ask again and again until the answer is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise FleetError(f"{what}: not so after {seconds:g} s")
        time.sleep(0.02)


def say(text: str) -> None:
    """Tell a person, or a log, how far things are."""
    sys.stderr.write(f"fleet: {text}\n")
    sys.stderr.flush()
