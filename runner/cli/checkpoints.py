"""The command `rung checkpoints`, and the note for a launch of a job that writes none."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import click

from rung.jobs.model.terminal_text import clean
from rung.runner.cli.review.job_argument import complete_job

if TYPE_CHECKING:
    from rung.jobs.spec.job_spec import JobSpec

NONE_YET = "{job} has no checkpoints yet"
NOT_STARTED = "{job} has not been started, so it has no checkpoints yet"


@click.command()
@click.argument("job", shell_complete=complete_job)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def checkpoints(job: str, as_json: bool) -> None:
    """List the checkpoints of JOB, and which are healthy.

    The newest comes first: step, kind, size, age, verdict and why, attempts that resumed from it.

    Those that were not verified yet are verified now by the job's Python, quickly: samples of their numbers, no
    checksums (LOOK sampled). They are verified in full before a job resumes from them.
    """
    from rung.runner.checkpoints.listing import checkpoint_rows
    from rung.runner.context import Context
    from rung.runner.session.session import Session

    session = Session.open()
    found = session.store.find(job)
    engines = session.engines()
    try:
        context = Context(session.store, engines, session.paths, os.environ)
        rows, notes = checkpoint_rows(context, found)
    finally:
        engines.close()
    if as_json:
        click.echo(json.dumps([row.to_dict() for row in rows], indent=2))
    elif rows:
        click.echo(_table([row.to_dict() for row in rows]))
    else:
        text = NONE_YET if session.store.attempts(found.id) else NOT_STARTED
        click.echo(text.format(job=found.id))
    for note in notes:
        click.echo(note, err=True)


def _table(rows: list[dict[str, Any]]) -> str:
    from rung.runner.views.tables import table, terminal_width
    from rung.runner.views.times import age_text

    headers = ["CHECKPOINT", "STEP", "KIND", "SIZE", "AGE", "VERDICT", "LOOK", "RESUMED BY", "WHERE", "WHY"]
    cells = [
        [
            clean(row["name"]),
            row["step"] if row["step_from"] != "time" else f"~{row['step']}",
            row["kind"],
            size_text(row["size"]),
            age_text(time.time() - row["written_at"]),
            row["verdict"],
            row["look"],
            ", ".join(map(str, row["resumed_by"])) or "-",
            clean(row["where"]),
            clean(row["why"]) or "-",
        ]
        for row in rows
    ]
    return table(headers, cells, terminal_width())


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def without_checkpoints(spec: JobSpec) -> str | None:
    """Return a note for a job that neither receives nor names a checkpoint; None if it may have some."""
    from rung.jobs.spec.knob_channels import placeholders

    texts = (*spec.run, *(spec.run_on_resume or ()), *spec.envs.values())
    named = {name for text in texts for name in placeholders(text)}
    files = json.dumps(spec.knobs.model_dump(mode="json"))
    known = named & {"checkpoint", "checkpoint_dir"} or "checkpoint" in spec.model_fields_set or '"checkpoint' in files
    if known or spec.knobs.mode != "flags":
        return None
    return (
        f"note: {spec.name} is given no {{checkpoint}} to go on from, so every relaunch begins at step 0 and all steps "
        "before a fault are lost; pass --resume {checkpoint} and {checkpoint_dir}, or see docs/checkpoints.md"
    )
