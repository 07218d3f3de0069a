"""The command `rung hosts`."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rung.recovery.nodes.bad_places import BadPlace
    from rung.runner.hosts.survey import Report


@click.command()
@click.option("--clear", "name", metavar="NAME", help="Give a host, node or GPU that is set aside another chance now.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def hosts(name: str | None, as_json: bool) -> None:
    """List the hosts: their GPUs, what is free, which are lost.

    The list is ansible/inventory/hosts.yml of a clone, else ~/.config/rung/hosts.yml, or the file that RUNG_HOSTS
    names. docs/operations.md says what is in it. Below it are the GPUs and nodes that jobs avoid, because jobs died
    there of a fault of the machine; --clear NAME ends that, for a host, a node of a site or the UUID of a GPU.
    """
    from rung.runner.hosts.host_list import default_list
    from rung.runner.views.hosts_table import describe_bad_place, hosts_json, hosts_table
    from rung.runner.views.tables import terminal_width

    if name is not None:
        click.echo(_clear(name), err=as_json)
        if not as_json:
            return
    now = time.time()
    bad = _bad_places(now)
    found = _reports(bad)
    if as_json:
        click.echo(json.dumps(hosts_json(found, bad, now), indent=2))
        return
    nothing = f"no hosts yet: list them in {default_list(os.environ)}, or in the file that RUNG_HOSTS names"
    click.echo(hosts_table(found, terminal_width(), bad) if found else nothing)
    for each in bad:
        click.echo(describe_bad_place(each, now))


def _reports(bad: list[BadPlace]) -> list[Report]:
    """Return the reports of the hosts; this machine is one of them while one of its GPUs is avoided."""
    from rung.runner.hosts.health import health_command
    from rung.runner.hosts.this_machine import HERE, survey_here
    from rung.runner.launch.known_sites import keep_sites_of_home
    from rung.runner.session.session import survey_hosts
    from rung.runner.state.home import find_home

    here = [survey_here(os.environ)] if any(each.place.host == HERE.name for each in bad) else []
    there = survey_hosts(health_command(quick=True))
    keep_sites_of_home(find_home(os.environ), there, at=time.time())
    return [*here, *there]


def _bad_places(now: float) -> list[BadPlace]:
    from rung.runner.session.session import Session
    from rung.runner.state.home import find_home

    return Session.open().store.bad_places(now) if find_home(os.environ).store.exists() else []


def _clear(name: str) -> str:
    """Give what has this name another chance, and say what that is."""
    from rung.jobs.model.errors import UsageError
    from rung.runner.session.session import Session

    now = time.time()
    bad = _bad_places(now)
    mine = [each for each in bad if name in (each.place.host, each.place.node, each.place.gpu)]
    if not mine:
        names = dict.fromkeys(each.place.node or each.place.host for each in bad)
        known = f"these are: {', '.join(names)}" if names else "nothing is"
        raise UsageError(f"--clear {name}: no job avoids it; {known}")
    store = Session.open().store
    with store.transaction():
        store.clear_place(name, at=now)
    return f"another chance from now on: {', '.join(each.place.name for each in mine)}"
