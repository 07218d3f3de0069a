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
from rung.runner.views.costs import gpu_cost, gpu_names, hosts_text, some_host_text
from rung.runner.views.times import duration_text, local_time

# What is said of an attempt: a label, the text, and its colour on a terminal.
Fact = tuple[str, str, str | None]

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
    return f"{click.style(job_id, bold=True)}  {state}  {whole_cost(summary)}"


def whole_cost(summary: Mapping[str, Any]) -> str:
    """Return the attempts of a job, how long they took and what they cost."""
    trials = f", {summary['trials']} of them trials" if summary["trials"] else ""
    trials += f", {summary['interruptions']} interrupted" if summary["interruptions"] else ""
    attempts = f"{summary['attempts']} attempt{'s' if summary['attempts'] != 1 else ''}{trials}"
    return f"{attempts}, {duration_text(summary['seconds'])}, {cost_text(summary)}" if summary["attempts"] else attempts


def cost_text(cost: Mapping[str, Any], seconds_lost: float | None = None) -> str:
    """Return steps made, steps lost and GPU-seconds."""
    until_further = f" ({seconds_lost:g} s)" if seconds_lost else ""
    return f"{cost['steps_made']} steps made, {cost['steps_lost']} lost{until_further}, {gpu_cost(cost)}"


def time_facts(attempt: Mapping[str, Any]) -> list[Fact]:
    """Return when an attempt began, how long it took and what it cost."""
    cost: Fact = ("cost", cost_text(attempt, attempt["seconds_lost"]), None)
    if attempt["started_at"] is None:
        began = "not started" + (" yet" if attempt["outcome"] == "pending" else "")
        spent = attempt["steps_made"] or attempt["seconds_lost"]
        return [("began", began, None), *([cost] if spent else [])]
    took = "took" if attempt["ended_at"] is not None else "has run for"
    began = f"{local_time(attempt['started_at'])}, {took} {duration_text(attempt['seconds'])}"
    return [("began", began, None), cost]


def _fact_lines(facts: Sequence[Fact]) -> list[str]:
    lines = [(f"  {label:<12}{text}", colour) for label, text, colour in facts]
    return [click.style(line, fg=colour) if colour else line for line, colour in lines]


def _attempt_text(attempt: Mapping[str, Any], *, diff: bool, zero_edit: bool) -> list[str]:
    lines = [click.style(attempt_title(attempt), bold=True), *_fact_lines(time_facts(attempt))]
    lines.append(f"  because     {clean(attempt['because'])}")
    if attempt["image"]:
        lines.append(f"  image       {clean(attempt['image'])}")
    for name, (old, new) in attempt["changed"].items():
        nothing = no_value_text(name, zero_edit=zero_edit)
        lines.append(f"  changed     {name}: {knob_text(old, nothing)} -> {knob_text(new, nothing)}")
    if diff:
        lines += _knob_lines(attempt, zero_edit=zero_edit)
        lines += [f"  skipped     {item['rung']}: {clean(item['reason'])}" for item in attempt["skipped"]]
    lines += [f"  taken back  {item['rung']}: {clean(item['reason'])}" for item in attempt["undone"]]
    for name, pair in attempt["not_taken"].items():
        asked, live = knob_text(pair["asked"], OFF), knob_text(pair["effective"], OFF)
        lines.append(click.style(f"  did not take  {name}: asked {asked}, effective {live}", fg="red"))
    return lines + _fact_lines(progress_facts(attempt))


def attempt_title(attempt: Mapping[str, Any]) -> str:
    """Return which attempt it is, where it ran, and the rung that it was launched with."""
    gpus = f" ({names})" if (names := gpu_names(attempt)) else ""
    node = f", node {attempt['node']}" if attempt["node"] else ""
    title = clean(f"attempt {attempt['number']} on {hosts_text(attempt)}{node}{gpus}")
    return (
        title if attempt["by_person"] else f"{title}: {_trial_of(attempt)}{attempt['rung'] or _without_rung(attempt)}"
    )


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
    if attempt["goes_on"]:
        return "goes on"
    if attempt["stepped_back"]:
        return "step back"
    if attempt["trial"]:
        return "as it is"
    return "back to what had cured it" if attempt["changed"] else "same knobs"


def _trial_of(attempt: Mapping[str, Any]) -> str:
    # Its number is in the reason: candidates do not run in the order in which they are listed.
    return "trial of " if attempt["trial"] else ""


def _knob_lines(attempt: Mapping[str, Any], *, zero_edit: bool) -> list[str]:
    pairs = knob_pairs(attempt, zero_edit=zero_edit)
    return [f"  {name:<16}asked {asked:<12} effective {effective}" for name, asked, effective in pairs]


def knob_pairs(attempt: Mapping[str, Any], *, zero_edit: bool) -> list[tuple[str, str, str]]:
    """Return each knob that has a value: its name, what was asked, and what is in force."""
    pairs = []
    for name, asked in attempt["asked"].items():
        effective = attempt["effective"].get(name)
        if asked is not None or effective is not None:
            live = knob_text(effective, OFF if name in attempt["effective"] else "not reported")
            pairs.append((name, knob_text(asked, no_value_text(name, zero_edit=zero_edit)), live))
    return pairs


def progress_facts(attempt: Mapping[str, Any]) -> list[Fact]:
    """Return where the attempt resumed, how far it got and how it ended."""
    facts = [("checkpoint", _resumed_text(attempt), None), *_doubt_facts(attempt)]
    facts.append(("reached", f"step {_cell(attempt['furthest_step'])}, loss {_cell(attempt['loss'])}", None))
    numbers = [f"{clean(name)} {_cell(value)}" for name, value in attempt["latest"].items()]
    numbers += [f"{_cell(value)} {unit}" for unit, value in attempt["throughput"].items()]
    facts += [("last seen", ", ".join(numbers), None)] if numbers else []
    facts += [("measured", f"{clean(name)} {_cell(value)}", None) for name, value in attempt["metrics"].items()]
    facts += _saturation_facts(attempt["saturation"]) if attempt["saturation"] else []
    facts += [("tracked", clean(link), None) for link in attempt["links"]]
    return facts + _end_facts(attempt)


def _resumed_text(attempt: Mapping[str, Any]) -> str:
    if not attempt["resumed_from"]:
        return "none: from scratch"
    proven = attempt["resumed_step"]
    resumed = f"resumed at step {proven}" if proven is not None else "step not yet proven by the job"
    source = attempt["checkpoint_from"]
    brought = f", brought from {source[0] or 'the copy here'}" if source else ""
    return clean(f"{attempt['resumed_from']}, {resumed}{brought}")


def _doubt_facts(attempt: Mapping[str, Any]) -> list[Fact]:
    """Return what did not go as planned at the start of an attempt."""
    facts: list[Fact] = []
    if attempt["not_resumed"]:
        facts.append(("not resumed", clean(attempt["not_resumed"]), "red"))
    if attempt["not_whole"]:
        facts.append(("not whole", clean(attempt["not_whole"]), "yellow"))
    if attempt["hands"]:
        facts.append(("no hands", clean(describe_no_hands(attempt["hands"])), "red"))
    return facts


def _end_facts(attempt: Mapping[str, Any]) -> list[Fact]:
    facts: list[Fact] = []
    if attempt["fault"]:
        fault = attempt["fault"]
        where = f" at step {fault['step']}" if fault["step"] is not None else ""
        facts += [("fault", f"{fault['kind']}{where}", "red"), ("", clean(fault["evidence"]), None)]
    if attempt["host_lost"]:
        facts.append(("host lost", f"{clean(some_host_text(attempt))} stayed away; nothing of it counts", "red"))
    outcome = end_text(attempt) + (f", {attempt['verdict']}" if attempt["verdict"] else "")
    if attempt["trial"] and attempt["trial"]["verdict"]:
        outcome = f"{outcome}; as a trial: {attempt['trial']['verdict']}"
    if attempt["verdict_why"]:
        facts.append((str(attempt["verdict"]), clean(attempt["verdict_why"]), None))
    return [*facts, ("outcome", outcome, "green" if attempt["outcome"] == "succeeded" else None)]


def end_text(attempt: Mapping[str, Any]) -> str:
    """Return the outcome of an attempt, with what its site did where it was interrupted."""
    why = attempt["interrupted"]
    return f"{attempt['outcome']}: {why}" if why else str(attempt["outcome"])


def _saturation_facts(saturation: Mapping[str, Any]) -> list[Fact]:
    """Return how often numbers that left a place did not fit FP16, and the warning where that is not rare."""
    often: Fact = ("saturated", f"in {saturation['saturated']} of {saturation['updates']} updates", None)
    warning = saturation["warning"]
    return [often, ("warning", clean(warning), "yellow")] if warning else [often]


def knob_text(value: Any, nothing: str) -> str:
    """Return the value of a knob for a person; `nothing`: the word for none."""
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
