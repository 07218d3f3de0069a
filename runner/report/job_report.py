"""Renders the report of one job: a page that needs nothing else, with no script and no link to elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rung.jobs.job import Job
from rung.jobs.model.event import EventKind
from rung.jobs.model.knobs import OFF, no_value_text
from rung.jobs.model.paths import HomePaths
from rung.runner.plots.drawing import draw
from rung.runner.plots.svg import embedded, plot_css
from rung.runner.plots.templates import environment
from rung.runner.report.checkpoint_list import known_checkpoints
from rung.runner.report.curves import job_figure, read_series
from rung.runner.report.summary import percent, share_again, summary_line
from rung.runner.state.store import Store
from rung.runner.views.costs import gpu_cost, gpu_names, hosts_text, unseen_gpus
from rung.runner.views.history import history
from rung.runner.views.story import duration, whole_story
from rung.runner.views.tables import end_text
from rung.runner.views.times import duration_text, local_time

HERE = Path(__file__).parent
Data = Mapping[str, Any]


@dataclass(frozen=True)
class KnobRow:
    """One knob of an attempt; `before` is empty where it was not changed."""

    name: str
    before: str
    asked: str
    effective: str
    took: bool


def job_page(store: Store, job: Job, paths: HomePaths, now: float) -> str:
    """Return the report of a job as HTML."""
    data = history(store, job, paths, now)
    attempts, events = store.attempts(job.id), store.events(job.id)
    figure = job_figure(job, attempts, read_series(job, attempts, paths))
    drawing = draw(figure, legend=False)
    zero_edit = data["job"]["knob_mode"] == "zero-edit"
    return (
        environment(HERE)
        .get_template("job.html.j2")
        .render(
            css=plot_css(),
            line=summary_line(data),
            data=data,
            made=local_time(now),
            totals=totals(data),
            plot=embedded(figure),
            marks=drawing.marks if drawing else (),
            attempts=[_attempt(row, zero_edit=zero_edit) for row in data["attempts"]],
            trials=[event["data"] for event in data["events"] if event["kind"] == EventKind.TRIALS],
            checkpoints=known_checkpoints(events, attempts),
            story=[(duration(line.at - job.created_at), line) for line in whole_story(events, attempts)],
        )
    )


def totals(data: Data) -> list[tuple[str, str]]:
    """Return the times and costs of a whole job, as rows."""
    summary, job = data["summary"], data["job"]
    share = share_again(data)
    again = f" ({percent(share)} of all)" if share else ""
    trials = f", {summary['trials']} of them trials" if summary["trials"] else ""
    trials += f", {summary['interruptions']} interrupted" if summary["interruptions"] else ""
    rows = [
        ("job", job["id"]),
        ("result", f"{summary['result']}: {job['reason']}" if job["reason"] else summary["result"]),
        ("submitted", summary["submitted"] or "not known"),
        ("ended", summary["ended"] or "not yet"),
        ("attempts", f"{summary['attempts']}{trials}"),
        ("time", duration_text(summary["seconds"])),
        ("steps made", f"{summary['steps_made']:,}"),
        ("steps run again", f"{summary['steps_lost']:,}{again}"),
    ]
    if summary["gpus"]:
        rows.append(("GPU-hours", f"{summary['gpu_seconds'] / 3600:.3g}"))
    elif unseen := unseen_gpus(summary):
        rows.append(("GPUs", unseen))
    return rows


def _attempt(row: Data, *, zero_edit: bool) -> dict[str, Any]:
    """Return an attempt of a history with its knobs and facts as rows for the page."""
    return {**row, "knobs": list(_knobs(row, zero_edit=zero_edit)), "facts": list(_facts(row))}


def _knobs(row: Data, *, zero_edit: bool) -> Iterator[KnobRow]:
    for name, asked in row["asked"].items():
        live = row["effective"].get(name)
        if asked is None and live is None and name not in row["changed"]:
            continue
        nothing = no_value_text(name, zero_edit=zero_edit)
        before = _value(row["changed"][name][0], nothing) if name in row["changed"] else ""
        shown = _value(live, OFF) if name in row["effective"] else "not reported"
        yield KnobRow(name, before, _value(asked, nothing), shown, name not in row["not_taken"])


def _value(value: Any, nothing: str) -> str:
    if value is None:
        return nothing
    return f"{value:g}" if isinstance(value, float) else str(value)


def _facts(row: Data) -> Iterator[tuple[str, str]]:
    """Yield when an attempt ran, where it resumed, how far it got and how it ended."""
    gpus = gpu_names(row)
    where = f"{row['host']}, node {row['node']}" if row["node"] else hosts_text(row) or ""
    yield "host", f"{where} ({gpus})" if gpus else where
    if row["image"]:
        yield "image", row["image"]
    if row["started_at"] is not None:
        yield "began", f"{local_time(row['started_at'])}, {duration_text(row['seconds'])}"
    resumed = f", resumed at step {row['resumed_step']}" if row["resumed_step"] is not None else ""
    yield "checkpoint", f"{row['resumed_from']}{resumed}" if row["resumed_from"] else "none: from scratch"
    yield "reached", f"step {_value(row['furthest_step'], 'not known')}, loss {_value(row['loss'], 'not known')}"
    yield "cost", f"{row['steps_made']} steps made, {row['steps_lost']} run again, {gpu_cost(row)}"
    for name, value in row["metrics"].items():
        yield name, _value(value, "not known")
    for name in ("not_resumed", "not_whole"):
        if row[name]:
            yield name.replace("_", " "), row[name]
    if row["saturation"] and row["saturation"]["warning"]:
        yield "saturated", row["saturation"]["warning"]
    if row["verdict"]:
        yield row["verdict"].replace("_", " "), row["verdict_why"]
    yield "outcome", end_text(row)
