"""The command `rung metrics`."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command()
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write them into FILE, whole or not at all."
)
def metrics(output: Path | None) -> None:
    """Print the numbers of all jobs as text for Prometheus.

    Jobs by state, recoveries by fault and rung, trials, steps lost, seconds from a fault to the relaunch, hosts, and
    whether a controller watches. With -o FILE, which everybody may read, it is made for the textfile collector of
    node_exporter: FILE ends in .prom, and cron runs this every minute.
    """
    from rung.runner.metrics.metrics import metrics_text
    from rung.runner.metrics.whole_file import export
    from rung.runner.state.home import find_home

    text = metrics_text(find_home(os.environ))
    if output is None:
        click.echo(text, nl=False)
    else:
        export(output, text)
