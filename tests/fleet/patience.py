"""Runs the programs of a fleet and waits: a failed program shows its last output, every wait is for a condition."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests import pace

# What takes longer than this at the usual pace will never come; tests/pace.py knows how far this machine is from it.
PATIENCE = 120.0


class FleetError(Exception):
    """Something the fleet could not do, in one line for a person."""


def run(*words: object, input: bytes | None = None, env: dict[str, str] | None = None, check: bool = True) -> str:
    """Run a program to its end and return what it printed; with its last words as the error when it fails."""
    command = [str(word) for word in words]
    done = pace.run(command, input=input or b"", env=env, capture_output=True, usual=900, check=False)
    if check and done.returncode:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-2000:]
        raise FleetError(f"{' '.join(command[:8])} failed with {done.returncode}: {said}")
    return done.stdout.decode("utf-8", "replace")


def wait_for(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Ask again and again until the answer is true."""
    try:
        pace.until(condition, seconds, what, every=0.02)
    except AssertionError as error:
        raise FleetError(f"{what}: {error}") from None


def say(text: str) -> None:
    """Tell a person, or a log, how far things are."""
    sys.stderr.write(f"fleet: {text}\n")
    sys.stderr.flush()
