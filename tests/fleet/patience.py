"""Runs the programs of a fleet and waits: a failed program shows its last output, every wait is for a condition."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests import pace

# The longest wait in seconds; on a slow machine tests/pace.py makes it longer.
PATIENCE = 120.0


class FleetError(Exception):
    """The fleet could not do something; the message is one line."""


def run(*words: object, input: bytes | None = None, env: dict[str, str] | None = None, check: bool = True) -> str:
    """Run a program and return its output; raise FleetError with the end of its output when it fails."""
    command = [str(word) for word in words]
    done = pace.run(command, input=input or b"", env=env, capture_output=True, usual=900, check=False)
    if check and done.returncode:
        output = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-2000:]
        raise FleetError(f"{' '.join(command[:8])} failed with {done.returncode}: {output}")
    return done.stdout.decode("utf-8", "replace")


def wait_for(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait until a condition is true."""
    try:
        pace.until(condition, seconds, what, every=0.02)
    except AssertionError as error:
        raise FleetError(f"{what}: {error}") from None


def say(text: str) -> None:
    """Print a line of progress to standard error."""
    sys.stderr.write(f"fleet: {text}\n")
    sys.stderr.flush()
