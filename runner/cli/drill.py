"""The commands `rung drill` and `rung demo`, which run jobs that ship with Rung."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rung.runner.cli.review.watched import refuse_bad_setting

if TYPE_CHECKING:
    from rung.runner.engine_pool import RealEngines
    from rung.runner.session.session import Session
    from rung.runner.state.store import Event

# Repeated here so that `rung --help` does not load the drills; a test compares the two.
FAULTS = ("nan", "overflow", "unscale", "collapse", "oom", "kill", "link")


@click.command()
@click.argument("fault", type=click.Choice(FAULTS))
@click.option(
    "--host", metavar="HOST", help="Run it on this host of the list, in a separate home for drills. Needs --image."
)
@click.option(
    "--image",
    metavar="IMAGE",
    help="Run it in this image, by digest or id; without --host on any host that can take it.",
)
@click.option("--home", type=click.Path(path_type=Path), help="Submit it into this folder instead of RUNG_HOME.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON and nothing else.")
def drill(fault: str, host: str | None, image: str | None, home: Path | None, as_json: bool) -> None:
    """Test your set-up with a toy job that has a real fault.

    It takes about a minute. The faults:

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


# In their order, and what is said before each.
DEMO_JOBS = (
    ("three-faults", ""),
    (
        "small-gpt",
        "\nThe next one shows no error: its lr is a hundred times too high. Short trials find the right one.",
    ),
)


@click.command()
def demo() -> None:
    """Watch real FP16 trainings fail and recover, in a few minutes.

    They run on the CPU: one to six minutes on two cores.

    The first run has three mistakes in it, fails three times, and recovers each time. The second one shows no error:
    its lr is far too high, and short trials find the right one. Both jobs ship with Rung, and need torch in the Python
    of this shell or in the one that Rung is installed in. They are jobs like any other: Ctrl-C ends only the following,
    and `rung rm three-faults small-gpt` removes what they wrote to RUNG_HOME, about 13 MiB.

    Exit code 0 if both recover, 1 if one does not, 2 without torch, 130 after Ctrl-C.
    """
    from rung.runner.files.disk_use import disk_use
    from rung.runner.session.session import Session

    refuse_bad_setting()
    _take_python_with_torch()
    session, began = Session.open(create=True), time.monotonic()
    before = disk_use([session.paths.home])[0].size
    for name, said in DEMO_JOBS:
        if said:
            click.echo(said)
        code = _show_demo_job(session, name)
        if code:
            sys.exit(code)
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    written = (disk_use([session.paths.home])[0].size - before) / (1 << 20)
    click.echo(f"The demo took {minutes} min {seconds} s and wrote {written:.0f} MiB to {session.paths.home}.")
    first, last = DEMO_JOBS[0][0], DEMO_JOBS[-1][0]
    click.echo(f"Look next: rung history {first}, rung logs {last}, rung init your-script.py")


def _take_python_with_torch() -> None:
    """Put a Python that has torch first on PATH, where the jobs of the demo look for one."""
    from rung.jobs.model.errors import UsageError
    from rung.runner.launch.shell_python import python_with_torch, with_python

    python = python_with_torch(os.environ)
    if python is None:
        raise UsageError(
            "rung demo: neither `python` of this shell nor the Python of Rung has torch, and the demo trains real "
            "models: activate an environment that has it, or `pip install torch`"
        )
    os.environ.update(with_python(os.environ, python))


def _show_demo_job(session: Session, name: str) -> int:
    """Submit a job of the catalog, and tell its story to its end; return the exit code for it."""
    from rung.jobs.spec.load import load_spec
    from rung.runner.session.drill import CATALOG
    from rung.runner.session.follow import JobFollow

    file = CATALOG / name / "job.yaml"
    job = session.submit(load_spec(file), file.parent, file)
    click.echo(f"submitted {job.id}")
    return JobFollow(session, job.id, log=False).follow()
