"""Serves the page beside a controller, in a process of its own: whatever happens to it, no job waits or is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

from rung.jobs.model.errors import ControllerError
from rung.runner.session.background import PROGRAM

# The page closes its streams for up to two seconds; one that does not end is killed.
END_SECONDS = 5.0


@contextmanager
def page_beside(port: int) -> Iterator[None]:
    """Serve the page for as long as this block runs. Its link is printed before the block begins."""
    command = [sys.executable, *PROGRAM, "web", "--port", str(port), "--until-input-ends"]
    try:
        process = subprocess.Popen(
            command,
            # It ends when its input does, so also when this process is killed.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C in this terminal stops the controller, which then ends the page.
            start_new_session=True,
        )
    except OSError as error:
        raise ControllerError(f"the page could not be started: {sys.executable}: {error.strerror}") from None
    assert process.stdin is not None
    assert process.stdout is not None
    closing = threading.Event()
    with process.stdin, process.stdout:
        try:
            said = process.stdout.readline() + process.stdout.readline()
            if not said:
                # It has said why on the standard error, which is ours.
                sys.exit(process.wait())
            click.echo(said, nl=False)
            threading.Thread(target=_say_when_ended, args=(process, closing), name="page", daemon=True).start()
            yield
        finally:
            closing.set()
            process.stdin.close()
            _await_end(process)


def _say_when_ended(process: subprocess.Popen[bytes], closing: threading.Event) -> None:
    code = process.wait()
    if not closing.is_set():
        click.echo(f"rung: the page has ended with exit code {code}; the controller goes on", err=True)


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
