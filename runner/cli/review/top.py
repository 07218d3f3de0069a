"""The command `rung top`."""

from __future__ import annotations

import os
import sys

import click

from rung.jobs.model.errors import UsageError

NEEDED = ("textual",)


@click.command()
def top() -> None:
    """Show the jobs and hosts in the terminal, live, by keyboard.

    Jobs with their state, step, loss, rung and time left, and the hosts with their GPUs. Enter shows the story of a
    job, / filters, q quits. It only reads; jobs and their controller do not depend on it.
    """
    from importlib.util import find_spec

    if not has_terminal():
        raise UsageError("rung top: needs a terminal; `rung queue` prints the jobs anywhere")
    lacking = [name for name in NEEDED if find_spec(name) is None]
    if lacking:
        raise UsageError(f"rung top: {', '.join(lacking)} is not installed; install it with: pip install 'rung[top]'")
    from rung.runner.session.open_home import OpenHome

    session = OpenHome.open()
    session.store.close()
    from rung.runner.top.app import TopApp
    from rung.runner.top.overview import OverviewReader

    TopApp(OverviewReader(session.paths)).run(mouse=False)


def has_terminal() -> bool:
    """Tell whether keys come from a terminal and a whole screen can be drawn on it."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
