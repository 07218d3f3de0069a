"""The command `rung notify`."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from rung.jobs.model.errors import NotifyError, UsageError

if TYPE_CHECKING:
    from rung.jobs.model.paths import HomePaths
    from rung.runner.notify.settings import Settings


@click.command()
@click.argument("name", required=False)
@click.option("--test", is_flag=True, help="Send a test message, to NAME or to all, and say what the service answered.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def notify(name: str | None, test: bool, as_json: bool) -> None:
    """List who is told about jobs, and what waits to be sent.

    It also shows the last error of each. RUNG_HOME/notify.yaml names them, each with a URL of Apprise;
    docs/notifications.md shows how. The URLs hold tokens, so only the service is ever shown.
    """
    from rung.runner.notify.settings import read_settings
    from rung.runner.state.home import find_home

    paths = find_home(os.environ)
    settings = read_settings(paths)
    if settings is None:
        if test or name is not None:
            raise NotifyError(f"{paths.notify}: there is no such file, so nobody is told; write one with `targets:`")
        click.echo("[]" if as_json else f"nobody is told about jobs: there is no {paths.notify}")
        return
    if name is not None and name not in settings.targets:
        raise UsageError(f"there is no target {name!r} in {paths.notify}; it has {', '.join(settings.targets)}")
    chosen = [name] if name is not None else [*settings.targets]
    rows = _tested(settings, chosen) if test else _listed(settings, chosen, paths)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        click.echo("\n".join(_test_line(row) for row in rows) if test else _table(rows))
    sys.exit(0 if all(row.get("accepted", True) for row in rows) else 1)


def _tested(settings: Settings, names: list[str]) -> list[dict[str, Any]]:
    from rung.runner.notify.post import send_test

    rows = []
    for name in names:
        target = settings.targets[name]
        answer = send_test(target, socket.gethostname())
        rows.append(
            {"name": name, "service": target.service, "accepted": answer.accepted, "error": answer.detail or None}
        )
    return rows


def _listed(settings: Settings, names: list[str], paths: HomePaths) -> list[dict[str, Any]]:
    from rung.runner.session.open_home import OpenHome
    from rung.runner.state.outbox_rows import TargetRow

    store = OpenHome.open().store if paths.store.exists() else None
    known = store.outbox_targets() if store is not None else {}
    waiting = store.outbox() if store is not None else []
    rows = []
    for name in names:
        row = known.get(name, TargetRow(name))
        mine = [each for each in waiting if each.target == name and each.is_due(time.time())]
        about = {"name": name, "service": settings.targets[name].service, "waiting": len(mine), "sent": row.sent}
        rows.append({**about, "sent_at": row.sent_at, "error": row.error, "error_at": row.error_at})
    return rows


def _test_line(row: dict[str, Any]) -> str:
    return f"{row['name']} ({row['service']}): " + ("accepted" if row["accepted"] else f"not accepted: {row['error']}")


def _table(rows: list[dict[str, Any]]) -> str:
    from rung.runner.views.times import local_time

    def at(moment: float | None) -> str:
        return local_time(moment) if moment is not None else "-"

    cells = [("NAME", "SERVICE", "WAITING", "SENT", "LAST SENT", "LAST ERROR")]
    for row in rows:
        error = f"{at(row['error_at'])} {row['error']}" if row["error"] else "-"
        sent = (row["name"], row["service"], str(row["waiting"]), str(row["sent"]))
        cells.append((*sent, at(row["sent_at"]), error))
    widths = [max(len(row[column]) for row in cells) for column in range(5)]
    return "\n".join("  ".join([*map(str.ljust, row[:5], widths), row[5]]) for row in cells)
