"""The command `rung drill`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rung.runner.engine_pool import RealEngines
    from rung.runner.session.session import Session
    from rung.runner.state.store import Event

# Repeated here so that `rung --help` does not load the drills; a test compares the two.
FAULTS = ("nan", "overflow", "unscale", "collapse", "oom", "kill", "link")


@click.command()
@click.argument("fault", type=click.Choice(FAULTS))
@click.option("--host", help="Run it on this host of the list, in a separate home for drills. Needs --image.")
@click.option("--image", help="Run it in this image, by digest or id; without --host on any host that can take it.")
@click.option("--home", type=click.Path(path_type=Path), help="Submit it into this folder instead of RUNG_HOME.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON and nothing else.")
def drill(fault: str, host: str | None, image: str | None, home: Path | None, as_json: bool) -> None:
    """Test your set-up with a toy job that has a real FAULT, in about a minute.

    nan: an lr far too high; overflow: a mask beyond FP16; unscale: FP16 parameters under a scaler; collapse: gradients
    beyond FP16 in every batch; oom: a batch too large; kill: the process is killed from outside; link: the connection
    to the host is cut (needs --host or --image). The job is submitted like any other, followed, and judged: exit code 0
    if the fault was detected and cured as it should be, 1 if not.
    """
    from rung.runner.session.drill import DRILLS, DrillRun

    session, engines = _open(fault, host, image, home)
    if not as_json:
        click.echo(f"drill {fault}: {DRILLS[fault].what}")
    try:
        verdict = DrillRun(session, engines, (lambda event: None) if as_json else _story(session)).run(fault, image)
    finally:
        engines.close()
    if as_json:
        click.echo(json.dumps(asdict(verdict), indent=2))
    else:
        label = click.style("PASS" if verdict.passed else "FAIL", fg="green" if verdict.passed else "red", bold=True)
        tries = f"{verdict.attempts} attempt{'s' * (verdict.attempts != 1)}, {verdict.seconds:.1f} s"
        click.echo(f"{label} {fault}: {verdict.text} ({tries}; `rung history {verdict.job_id}` shows more)")
    sys.exit(0 if verdict.passed else 1)


def _open(fault: str, host: str | None, image: str | None, home: Path | None) -> tuple[Session, RealEngines]:
    """Return the session and the engines of a drill."""
    from rung.runner.session.session import Session
    from rung.runner.state.home import find_home

    _refuse_impossible(fault, host, image)
    if home is not None:
        os.environ["RUNG_HOME"] = str(home.absolute())
    elif host is not None:
        # A controller that knows only one host must not supervise jobs on the others.
        os.environ["RUNG_HOME"] = str(find_home(os.environ).home / "drills")
    session = Session.open(create=True)
    return session, session.engines(only=host)


def _refuse_impossible(fault: str, host: str | None, image: str | None) -> None:
    from rung.jobs.model.errors import UsageError
    from rung.jobs.spec.image import is_pinned
    from rung.runner.hosts.host_list import find_hosts

    if host is not None and image is None:
        raise UsageError("--host: a job on a host runs in an image; name one with --image, by digest or id")
    if fault == "link" and image is None:
        raise UsageError("drill link: there is no link to cut on this machine; name a host and an image")
    if image is not None and not is_pinned(image):
        raise UsageError(f"--image {image}: pin the image by digest: name@sha256:..., or by its id: sha256:...")
    if host is not None and all(host != each.name for each in find_hosts(os.environ)):
        raise UsageError(f"--host {host}: is not in the list of hosts; `rung hosts` shows it")


def _story(session: Session) -> Callable[[Event], None]:
    """Return what prints the story of the drill's job, event by event."""
    from rung.runner.views.story_follower import StoryPrinter

    printer = StoryPrinter()
    return lambda event: printer.show(event, session.store.attempts(event.job_id))
