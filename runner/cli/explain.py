"""The command `rung explain`."""

from __future__ import annotations

import json
from typing import Any

import click

from rung.jobs.model.terminal_text import clean


@click.command()
@click.argument("log", type=click.File("rb"))
@click.option("--quick", is_flag=True, help="Search only for faults, at the speed of grep: no steps, no early warning.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def explain(log: Any, quick: bool, as_json: bool) -> None:
    """Show the faults that Rung finds in any LOG file (- for standard input), what it read, and what it would do.

    What it would do is said for a job with the default ladder that takes all knobs, with a healthy checkpoint from
    before the fault; `rung launch --dryrun` says it for a job file.
    """
    from rung.runner.session.explain import explain_log

    explanation = explain_log(log, quick=quick)
    found = explanation.faults
    if as_json:
        click.echo(json.dumps(found, indent=2, default=str))
        return
    for fault in found:
        step = f" step {fault['step']}" if fault["step"] is not None else ""
        cause = " (first cause)" if fault["first_cause"] and len(found) > 1 else ""
        note = f" [{fault['note']}]" if fault["note"] else ""
        named = click.style(fault["fault"], fg="red")
        click.echo(f"line {fault['line']}:{step} {named}{cause}: {fault['evidence']}{note}")
    if not found:
        click.echo("no fault that Rung knows")
    for line in explanation.text():
        click.echo(clean(line))
