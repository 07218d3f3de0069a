"""Formats tables, the history and events as text for a person. Prints nothing.

Control codes are removed from everything that came from a log.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from rung.jobs.model.event import EventKind, find_kind, reason
from rung.jobs.model.hands import describe_no_hands
from rung.jobs.model.knobs import OFF, no_value_text
from rung.jobs.model.terminal_text import clean
from rung.runner.state.store import Event
from rung.runner.views.times import duration_text, local_time

STATE_COLOURS = {
    "SUCCEEDED": "green",
    "RUNNING": "cyan",
    "LAUNCHING": "cyan",
    "RECOVERING": "yellow",
    "STOPPING": "yellow",
    "FAILED": "red",
    "CANCELLED": "magenta",
}


def terminal_width() -> int:
    """Return the width of the terminal; output into a file or a pipe is not cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> str:
    """Lay out columns; the last one is cut to fit the terminal."""
    cells = [[_cell(value) for value in row] for row in rows]
    sizes = _sizes(headers, cells)
    room = max(12, width - sum(sizes[:-1]) - 2 * (len(headers) - 1))
    lines = [click.style(_line(headers, sizes, room), bold=True)]
    for row in cells:
        text = _line(row, sizes, room)
        state = next((cell for cell in row if cell in STATE_COLOURS), None)
        coloured = click.style(state, fg=STATE_COLOURS[state]) if state else ""
        lines.append(text.replace(state, coloured, 1) if state else text)
    return "\n".join(lines)


def column_widths(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    """Return how much of a line these columns take, each with the gap after it."""
    return sum(size + 2 for size in _sizes(headers, [[_cell(value) for value in row] for row in rows]))


def _sizes(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(row[i]) for row in [list(headers), *cells]) for i in range(len(headers))]


def _line(row: Sequence[str], sizes: Sequence[int], room: int) -> str:
    last = row[-1] if len(row[-1]) <= room else row[-1][: room - 1] + "…"
    padded = [cell.ljust(size) for cell, size in zip(row[:-1], sizes, strict=False)]
    return "  ".join([*padded, last]).rstrip()


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else clean(str(value))


def history_text(data: Mapping[str, Any], *, diff: bool) -> str:
    """Return the history of a job, attempt by attempt; with `diff` every detail of each."""
    job = data["job"]
    lines = [summary_line(job["id"], data["summary"]), clean(job["reason"])]
    if job["python"]:
        lines.append(f"python {clean(job['python'])}")
    zero_edit = job["knob_mode"] == "zero-edit"
    tables = {event["attempt"]: event["data"] for event in data["events"] if event["kind"] == EventKind.TRIALS}
    for attempt in data["attempts"]:
        lines += ["", *_attempt_text(attempt, diff=diff, zero_edit=zero_edit)]
        if attempt["number"] in tables:
            lines += ["", *trial_lines(tables[attempt["number"]])]
    if not data["attempts"]:
        lines.append("no attempt yet")
    for event in data["events"]:
        if event["kind"] == EventKind.VALIDATED:
            lines += ["", click.style("validation", bold=True), f"  verdict     {clean(event['data']['because'])}"]
            lines.append(f"  report      {clean(event['data']['report'])}")
    ends = [event["data"] for event in data["events"] if event["kind"] == EventKind.STOPPED]
    if ends and job["state"] == "FAILED":
        lines += ["", click.style("no rung was left", bold=True)]
        lines += [f"  {rung:<26}{clean(reason)}" for rung, reason in ends[-1]["skipped"].items()]
    return "\n".join(lines)


def summary_line(job_id: str, summary: Mapping[str, Any]) -> str:
    """Return the result of a job and what it cost, in one line."""
    state = click.style(summary["result"], fg=STATE_COLOURS.get(summary["result"]), bold=True)
    trials = f", {summary['trials']} of them trials" if summary["trials"] else ""
    attempts = f"{summary['attempts']} attempt{'s' if summary['attempts'] != 1 else ''}{trials}"
    cost = f"{attempts}, {duration_text(summary['seconds'])}, {_cost(summary)}" if summary["attempts"] else attempts
    return f"{click.style(job_id, bold=True)}  {state}  {cost}"


def _cost(cost: Mapping[str, Any], seconds_lost: float | None = None) -> str:
    """Return steps made, steps lost and GPU-seconds."""
    until_further = f" ({seconds_lost:g} s)" if seconds_lost else ""
    gpu = f"{cost['gpu_seconds']:.0f} GPU-seconds" if cost["gpus"] else "no GPU leased"
    return f"{cost['steps_made']} steps made, {cost['steps_lost']} lost{until_further}, {gpu}"


def _time_lines(attempt: Mapping[str, Any]) -> list[str]:
    """Return when an attempt began, how long it took and what it cost."""
    cost = f"  cost        {_cost(attempt, attempt['seconds_lost'])}"
    if attempt["started_at"] is None:
        began = "  began       not started" + (" yet" if attempt["outcome"] == "pending" else "")
        return [began, cost] if attempt["steps_made"] or attempt["seconds_lost"] else [began]
    took = "took" if attempt["ended_at"] is not None else "has run for"
    began = f"  began       {local_time(attempt['started_at'])}, {took} {duration_text(attempt['seconds'])}"
    return [began, cost]


def _attempt_text(attempt: Mapping[str, Any], *, diff: bool, zero_edit: bool) -> list[str]:
    gpus = f" ({', '.join(gpu['name'] for gpu in attempt['gpus'])})" if attempt["gpus"] else ""
    title = clean(f"attempt {attempt['number']} on {attempt['host']}{gpus}")
    if not attempt["by_person"]:
        title = f"{title}: {_trial_of(attempt)}{attempt['rung'] or _without_rung(attempt)}"
    lines = [click.style(title, bold=True), *_time_lines(attempt), f"  because     {clean(attempt['because'])}"]
    if attempt["image"]:
        lines.append(f"  image       {clean(attempt['image'])}")
    for name, (old, new) in attempt["changed"].items():
        nothing = no_value_text(name, zero_edit=zero_edit)
        lines.append(f"  changed     {name}: {_knob(old, nothing)} -> {_knob(new, nothing)}")
    if diff:
        lines += _knob_lines(attempt, zero_edit=zero_edit)
        lines += [f"  skipped     {item['rung']}: {clean(item['reason'])}" for item in attempt["skipped"]]
    lines += [f"  taken back  {item['rung']}: {clean(item['reason'])}" for item in attempt["undone"]]
    lines += [
        click.style(
            f"  did not take  {name}: asked {_knob(pair['asked'], OFF)}, effective {_knob(pair['effective'], OFF)}",
            fg="red",
        )
        for name, pair in attempt["not_taken"].items()
    ]
    return lines + _progress_lines(attempt)


def trial_lines(data: Mapping[str, Any]) -> list[str]:
    """Return the table of trials, and what it shows."""
    title = click.style("trials", bold=True)
    rows = trial_table(data["table"], 10_000).split("\n")
    return [f"{title}  {clean(data['because'])}", *(f"  {line}" for line in rows)]


def trial_table(rows: Sequence[Mapping[str, Any]], width: int) -> str:
    headers = ("RUNG", "STEPS", "LOSS", "MS A STEP", "VERDICT")
    keys = ("rung", "steps", "loss", "ms", "verdict")
    return table(headers, [[row[key] for key in keys] for row in rows], width)


def _without_rung(attempt: Mapping[str, Any]) -> str:
    if attempt["stepped_back"]:
        return "step back"
    if attempt["trial"]:
        return "as it is"
    return "back to what had cured it" if attempt["changed"] else "same knobs"


def _trial_of(attempt: Mapping[str, Any]) -> str:
    # Its number is in the reason: candidates do not run in the order in which they are listed.
    return "trial of " if attempt["trial"] else ""


def _knob_lines(attempt: Mapping[str, Any], *, zero_edit: bool) -> list[str]:
    lines = []
    for name, asked in attempt["asked"].items():
        effective = attempt["effective"].get(name)
        if asked is not None or effective is not None:
            live = _knob(effective, OFF if name in attempt["effective"] else "not reported")
            lines.append(
                f"  {name:<16}asked {_knob(asked, no_value_text(name, zero_edit=zero_edit)):<12} effective {live}"
            )
    return lines


def _progress_lines(attempt: Mapping[str, Any]) -> list[str]:
    """Return where the attempt resumed, how far it got and how it ended."""
    if attempt["resumed_from"]:
        proven = attempt["resumed_step"]
        resumed = f"resumed at step {proven}" if proven is not None else "step not yet proven by the job"
        source = attempt["checkpoint_from"]
        brought = f", brought from {source[0] or 'the copy here'}" if source else ""
        lines = [f"  checkpoint  {clean(attempt['resumed_from'])}, {resumed}{clean(brought)}"]
    else:
        lines = ["  checkpoint  none: from scratch"]
    if attempt["not_resumed"]:
        lines.append(click.style(f"  not resumed {clean(attempt['not_resumed'])}", fg="red"))
    if attempt["not_whole"]:
        lines.append(click.style(f"  not whole   {clean(attempt['not_whole'])}", fg="yellow"))
    if attempt["hands"]:
        lines.append(click.style(f"  no hands    {clean(describe_no_hands(attempt['hands']))}", fg="red"))
    lines.append(f"  reached     step {_cell(attempt['furthest_step'])}, loss {_cell(attempt['loss'])}")
    numbers = [f"{clean(name)} {_cell(value)}" for name, value in attempt["latest"].items()]
    numbers += [f"{_cell(value)} {unit}" for unit, value in attempt["throughput"].items()]
    lines += [f"  last seen   {', '.join(numbers)}"] if numbers else []
    lines += [f"  measured    {clean(name)} {_cell(value)}" for name, value in attempt["metrics"].items()]
    lines += _saturation_lines(attempt["saturation"]) if attempt["saturation"] else []
    lines += [f"  tracked     {clean(link)}" for link in attempt["links"]]
    if attempt["fault"]:
        fault = attempt["fault"]
        where = f" at step {fault['step']}" if fault["step"] is not None else ""
        lines.append(click.style(f"  fault       {fault['kind']}{where}", fg="red"))
        lines.append(f"              {clean(fault['evidence'])}")
    if attempt["host_lost"]:
        lines.append(click.style(f"  host lost   {clean(attempt['host'])} stayed away; nothing of it counts", fg="red"))
    succeeded = attempt["outcome"] == "succeeded"
    outcome = attempt["outcome"] + (f", {attempt['verdict']}" if attempt["verdict"] else "")
    if attempt["trial"] and attempt["trial"]["verdict"]:
        outcome = f"{outcome}; as a trial: {attempt['trial']['verdict']}"
    if attempt["verdict_why"]:
        lines.append(f"  {attempt['verdict']:<12}{clean(attempt['verdict_why'])}")
    return [*lines, click.style(f"  outcome     {outcome}", fg="green" if succeeded else None)]


def _saturation_lines(saturation: Mapping[str, Any]) -> list[str]:
    """Return how often numbers that left a place did not fit FP16, and the warning where that is not rare."""
    lines = [f"  saturated   in {saturation['saturated']} of {saturation['updates']} updates"]
    warning = saturation["warning"]
    return [*lines, click.style(f"  warning     {clean(warning)}", fg="yellow")] if warning else lines


def _knob(value: Any, nothing: str) -> str:
    if value is None:
        return nothing
    return f"{value:g}" if isinstance(value, float) else clean(str(value))


def event_line(event: Event, host: str) -> str:
    """Return one event as a log line."""
    where = f"job={event.job_id} attempt={event.attempt or '-'} host={host}"
    return f"{_time_of_day(event.at)} {where} {event.kind}: {event_text(event)}"


def _time_of_day(at: float) -> str:
    try:
        return datetime.fromtimestamp(at).strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        # A host that lies may report a time that no calendar has. The controller prints this line and must go on.
        return "??:??:??"


def event_text(event: Event) -> str:
    """Return what happened, in words."""
    kind = find_kind(event.kind)
    return clean(kind.describe(event.data) if kind else reason(event.data))
