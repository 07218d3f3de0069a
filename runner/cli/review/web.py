"""The command `rung web`."""

from __future__ import annotations

import click

from rung.jobs.model.errors import UsageError

NEEDED = ("starlette", "uvicorn", "sse_starlette", "jinja2")


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="PORT", default=8321, show_default=True, help="0: any free port."
)
@click.option("--open", "browse", is_flag=True, help="Open the page in your browser.")
def web(port: int, browse: bool) -> None:
    """Show the jobs as a live page in the browser.

    Only this machine is served. It prints a link with a random token, without which nothing is shown. Ends with Ctrl-C;
    jobs and their controller do not depend on it.
    """
    from importlib.util import find_spec

    lacking = [name for name in NEEDED if find_spec(name) is None]
    if lacking:
        raise UsageError(f"rung web: {', '.join(lacking)} is not installed; install it with: pip install 'rung[web]'")
    from rung.runner.session.session import Session
    from rung.runner.web.serve import serve

    session = Session.open(create=True)
    session.store.close()
    serve(session.paths, port, _announce, browse=browse)


def _announce(link: str) -> None:
    click.echo(f"Rung is at {link}")
    click.echo("The link works while this command runs, for whoever has it: keep it to yourself. Ctrl-C ends it.")
