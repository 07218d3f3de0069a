"""The command `rung controller`, and what other commands say about the controller."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from rung.jobs.model.errors import UsageError
from rung.jobs.model.terminal_text import clean
from rung.runner.cli.review.watched import warn_if_unwatched
from rung.runner.cli.review.web import DEFAULT_PORT, PORT, refuse_without_extra

if TYPE_CHECKING:
    from rung.jobs.job import Job
    from rung.runner.session.session import Session

SECONDS = click.FloatRange(min=0)


@click.command()
@click.option(
    "--until-idle", is_flag=True, help="End when no active job is left; where another controller runs, wait for that."
)
@click.option("--idle-end", type=SECONDS, metavar="SECONDS", help="End once no job has been active for so long.")
@click.option("--web", is_flag=True, help="Also serve the page of `rung web`, in a process of its own.")
@click.option(
    "--port", type=PORT, metavar="PORT", help=f"The port of that page; 0: any free port.  [default: {DEFAULT_PORT}]"
)
@click.option("--background", is_flag=True, help="Start one in the background, as `rung launch` does, if none runs.")
@click.option("--status", is_flag=True, help="Say which process is the controller; exit code 1 if there is none.")
@click.option("--stop", is_flag=True, help="Stop the one that runs; jobs go on, and the next controller finds them.")
@click.option("--install", is_flag=True, help="Run it as a systemd service of yours, also after a restart.")
@click.option("--uninstall", is_flag=True, help="Stop and remove that service.")
def controller(until_idle: bool, idle_end: float | None, web: bool, port: int | None, **actions: bool) -> None:
    """Run, start, stop or install the controller of all jobs.

    Without an option it runs in the foreground, for all jobs of this RUNG_HOME.

    Commands that need a controller start one in the background, which ends by itself when no job is active for a
    while; with RUNG_CONTROLLER=manual they do not.

    On this machine it runs one job on each GPU that jobs ask for, and of jobs without a GPU one for each core at once,
    or as many as RUNG_MAX_PARALLEL says. The others wait.

    With --web it prints the link of the page, which ends with the controller.
    """
    asked = [name for name, given in actions.items() if given]
    running = until_idle or idle_end is not None or web or port is not None
    if len(asked) > 1 or (asked and running) or (until_idle and idle_end is not None):
        raise UsageError("rung controller: take one of its options; they exclude each other")
    if port is not None and not web:
        raise UsageError("rung controller: --port is the port of the page; give --web, too")
    if asked:
        ACTIONS[asked[0]]()
        return
    if web:
        refuse_without_extra("rung controller --web")
    from rung.runner.session.session import Session
    from rung.runner.web.page_process import page_beside

    session = Session.open(create=True, wait=True)
    if web and not until_idle and session.controller_running():
        # Before the link is printed, which would end with this command.
        raise UsageError("rung controller --web: a controller is already running; `rung web` shows the page beside it")
    with page_beside(DEFAULT_PORT if port is None else port) if web else nullcontext():
        session.control(until_idle=until_idle, idle_end=idle_end)


def _background() -> None:
    from rung.runner.session.background import start_background
    from rung.runner.session.session import Session
    from rung.runner.session.watching import describe

    session = Session.open(create=True)
    if not session.controller_running():
        start_background(session.paths, os.environ)
    click.echo(describe(session.paths, session.store))


def _status() -> None:
    from rung.runner.session.open_home import OpenHome
    from rung.runner.session.watching import describe
    from rung.runner.state.home import find_home
    from rung.runner.state.lock import is_owned

    paths = find_home(os.environ)
    store = OpenHome.open().store if paths.store.exists() else None
    click.echo(describe(paths, store))
    sys.exit(0 if is_owned(paths) else 1)


def _stop() -> None:
    from rung.runner.state.home import find_home
    from rung.runner.state.owner import stop_owner

    pid = stop_owner(find_home(os.environ))
    if pid is None:
        click.echo("no controller is running")
    else:
        click.echo(f"controller pid {pid} has stopped; running jobs go on, and the next controller finds them")


def _install() -> None:
    from rung.runner.session.service import install

    for line in install(os.environ):
        click.echo(line)


def _uninstall() -> None:
    from rung.runner.session.service import uninstall

    click.echo(uninstall(os.environ))


ACTIONS = {
    "background": _background,
    "status": _status,
    "stop": _stop,
    "install": _install,
    "uninstall": _uninstall,
}


def watch_over(session: Session, job: Job, follow_log: tuple[bool, bool], *, quiet: bool) -> None:
    """Follow a job that has just been queued, if that is asked for; in any case see to it that a controller runs."""
    follow, log = follow_log
    _warn_of_other_variables(session, job)
    if follow or log:
        from rung.runner.session.follow import JobFollow

        sys.exit(JobFollow(session, job.id, log=log).follow())
    _see_to_controller(session, job, f"`rung follow {job.id}` shows it", quiet=quiet)


def watch_group(session: Session, job: Job, group: str, *, quiet: bool) -> None:
    """See to it that a controller runs for the jobs of a group, of which this is one."""
    _warn_of_other_variables(session, job)
    _see_to_controller(session, job, f"`rung queue --group {group}` lists the jobs", quiet=quiet)


def _see_to_controller(session: Session, job: Job, shown: str, *, quiet: bool) -> None:
    """Start a controller for a queued job if none runs, and say who watches it; `quiet`: only if that is nobody."""
    from rung.jobs.model.errors import ControllerError
    from rung.runner.session.background import ensure_controller
    from rung.runner.session.watching import controller_name

    try:
        watched = ensure_controller(session.paths, os.environ)
    except ControllerError as error:
        click.echo(f"{clean(str(error))}; nobody watches {job.id} until one runs", err=True)
        return
    if not watched:
        warn_if_unwatched(session, job)
    elif not quiet:
        click.echo(f"{controller_name(session.paths)} watches it; {shown}")


def _warn_of_other_variables(session: Session, job: Job) -> None:
    """Say that a controller which runs already gives a job on this machine other variables than this shell has."""
    from rung.runner.session.background import other_variables
    from rung.runner.session.watching import controller_name

    others = [] if job.spec.is_remote else other_variables(session.paths, os.environ, job.spec.secrets)
    if others:
        click.echo(
            f"note: {controller_name(session.paths)} was started with other values of {', '.join(others)}, and "
            "jobs get these (with the Python of this shell); to use those of this shell, run `rung controller --stop` "
            "before you launch",
            err=True,
        )
