"""The command `rung web`."""

from __future__ import annotations

import sys

import click

from rung.jobs.model.errors import UsageError

NEEDED = ("starlette", "uvicorn", "sse_starlette", "jinja2")


PORT = click.IntRange(0, 65535)
DEFAULT_PORT = 8321


def refuse_without_extra(command: str) -> None:
    """Refuse to serve the page where the packages for it are not installed."""
    from importlib.util import find_spec

    lacking = [name for name in NEEDED if find_spec(name) is None]
    if lacking:
        raise UsageError(f"{command}: {', '.join(lacking)} is not installed; install it with: pip install 'rung[web]'")


@click.command()
@click.option("--port", type=PORT, metavar="PORT", default=DEFAULT_PORT, show_default=True, help="0: any free port.")
@click.option("--open", "browse", is_flag=True, help="Open the page in your browser.")
@click.option("--until-input-ends", "beside", is_flag=True, hidden=True)
def web(port: int, browse: bool, beside: bool) -> None:
    """Show the jobs as a live page in the browser.

    Only this machine is served. It prints a link with a random token, without which nothing is shown. Ends with Ctrl-C;
    jobs and their controller do not depend on it.
    """
    refuse_without_extra("rung web")
    from rung.runner.session.open_home import OpenHome
    from rung.runner.web.serve import serve

    session = OpenHome.open(create=True)
    session.store.close()
    serve(session.paths, port, _announce, browse=browse, lifeline=sys.stdin.buffer if beside else None)


def _announce(link: str) -> None:
    click.echo(f"Rung is at {link}")
    click.echo("The link works while this command runs, for whoever has it: keep it to yourself. Ctrl-C ends it.")
