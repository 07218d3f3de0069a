"""Compares jobs for `rung compare`: what differs in their settings, what came of them, and what they cost."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import HomePaths
from rung.recovery.validation.at_step import StepReader
from rung.runner.files.log_file import read_lines
from rung.runner.state.codec import finite_or_text
from rung.runner.state.group_rows import Membership
from rung.runner.state.store import Store
from rung.runner.views.costs import busy_seconds, gpu_seconds, runs_until, steps_made
from rung.runner.views.tables import column_widths, table
from rung.runner.views.times import duration_text

# The fields of a job file that are compared otherwise, or that say nothing about the training.
NOT_SETTINGS = ("name", "priority", "knobs", "run", "run_on_resume")
# Which columns are left out first where the table would be too wide.
LEFT_OUT = ("GPU SECONDS", "RUNGS", "STEPS", "LAUNCHES", "TIME", "FAULTS")
LONGEST_CELL = 28


def compare(store: Store, jobs: Sequence[Job], paths: HomePaths, now: float) -> dict[str, Any]:
    """Return the jobs with what differs in their settings, and their losses at the last step that all have reached."""
    attempts = {job.id: store.attempts(job.id) for job in jobs}
    reached = [last for job in jobs if (last := _last_step(attempts[job.id])) is not None]
    step, metric = min(reached, default=None), _shared_metric(jobs)
    settings = _differing(_settings(jobs, store.groups()))
    rows = [
        {
            **_job_row(job, attempts[job.id], now),
            **_values_at(step, metric, attempts[job.id], paths),
            "settings": {name: values[index] for name, values in settings.items()},
        }
        for index, job in enumerate(jobs)
    ]
    return {"step": step, "metric": metric, "differs": list(settings), "jobs": rows}


def _last_step(attempts: Sequence[Attempt]) -> int | None:
    """Return the last step of the job's own run: what a relaunch has thrown away does not count."""
    return next((a.furthest_step for a in reversed(main_line(attempts)) if a.furthest_step is not None), None)


def _shared_metric(jobs: Sequence[Job]) -> str | None:
    """Return the metric of success, if all jobs have the same one."""
    metrics = {job.spec.success.metric if job.spec.success else None for job in jobs}
    return metrics.pop() if len(metrics) == 1 else None


def _job_row(job: Job, attempts: Sequence[Attempt], now: float) -> dict[str, Any]:
    until, line = runs_until(job, now), main_line(attempts)
    return {
        "id": job.id,
        "name": job.spec.name,
        "state": job.state.value,
        "verdict": line[-1].verdict if line else None,
        "last_step": _last_step(attempts),
        "steps_made": sum(steps_made(attempt) for attempt in attempts),
        "launches": len(attempts),
        "trials": sum(attempt.is_trial for attempt in attempts),
        "faults": dict(Counter(attempt.fault.kind.value for attempt in line if attempt.fault)),
        "rungs": [attempt.rung for attempt in line if attempt.rung],
        "run_seconds": busy_seconds(attempts, until),
        "gpu_seconds": round(sum(gpu_seconds(attempt, until) for attempt in attempts), 1),
    }


def _values_at(
    step: int | None, metric: str | None, attempts: Sequence[Attempt], paths: HomePaths
) -> dict[str, float | str | None]:
    """Return the loss and the metric of a job at a step, from the log of the run that went on from there."""
    loss = measured = None
    for attempt in reversed(main_line(attempts) if step is not None else []):
        # What it resumed at is the last step of the run before it.
        if step is None or attempt.resume_point > step or (loss and (measured or metric is None)):
            continue
        reader = StepReader(step, metric)
        try:
            for line in read_lines(paths.attempt(attempt.job_id, attempt.number).log):
                reader.feed(line)
        except EngineError:
            continue  # It has no values then.
        loss, measured = loss or reader.loss, measured or reader.measured
    found = {"loss": loss[1] if loss else None, "metric_value": measured[1] if measured else None}
    return {name: finite_or_text(value) for name, value in found.items()}


# Settings


def _settings(jobs: Sequence[Job], groups: Mapping[str, Membership]) -> list[dict[str, Any]]:
    """Return the settings of each job by name; of the jobs of one grid what the grid has set, in its own words."""
    members = [groups.get(job.id) for job in jobs]
    if None not in members and len({member.group for member in members if member}) == 1:
        return [dict(member.settings) for member in members if member]
    words = [job.spec.run for job in jobs]
    return [{**_of_spec(job), "run": _own_words(job.spec.run, words)} for job in jobs]


def _of_spec(job: Job) -> dict[str, Any]:
    spec = job.spec.model_dump(mode="json", exclude=set(NOT_SETTINGS))
    return {**job.knobs.to_dict(), **_flat(spec)}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _own_words(run: Sequence[str], others: Sequence[Sequence[str]]) -> str:
    """Return the words of a command that not all of the commands have."""
    return shlex.join(word for word in run if not all(word in other for other in others))


def _differing(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the settings that are not the same in all jobs, each with its values."""
    names = dict.fromkeys(name for each in settings for name in each)
    values = {name: [each.get(name) for each in settings] for name in names}
    return {name: found for name, found in values.items() if any(value != found[0] for value in found)}


# Text


def compare_text(data: Mapping[str, Any], width: int) -> str:
    """Return the jobs side by side if that fits the width, else one below the other."""
    cells = [_cells(row, data) for row in data["jobs"]]
    headers = ["", *(row["id"] for row in data["jobs"])]
    rows = [[name.lower() if name.isupper() else name, *(each[name] for each in cells)] for name in cells[0]]
    if column_widths(headers, rows) - 2 <= width:
        return table(headers, rows, width)
    return _list(cells, [row["id"] for row in data["jobs"]], width)


def _list(cells: Sequence[Mapping[str, Any]], ids: Sequence[str], width: int) -> str:
    shown = list(cells[0])

    def rows() -> list[list[Any]]:
        return [[job, *(each[name] for name in shown)] for job, each in zip(ids, cells, strict=True)]

    for name in LEFT_OUT:
        if column_widths(["JOB", *shown], rows()) - 2 > width and name in shown:
            shown.remove(name)
    return table(["JOB", *shown], rows(), width)


def _cells(row: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    step, metric = data["step"], data["metric"]
    trials = f" ({row['trials']} trials)" if row["trials"] else ""
    at_step = {f"LOSS AT {step}": _number(row["loss"])} if step is not None else {}
    at_step |= {f"{metric} at {step}": _number(row["metric_value"])} if metric and step is not None else {}
    faults = [kind if count == 1 else f"{kind} x{count}" for kind, count in row["faults"].items()]
    return {
        **{name: _short(value) for name, value in row["settings"].items()},
        "RESULT": f"{row['state']}, {row['verdict']}" if row["verdict"] else row["state"],
        **at_step,
        "STEPS": row["last_step"],
        "LAUNCHES": f"{row['launches']}{trials}",
        "FAULTS": _short(", ".join(faults)),
        "RUNGS": _short(", ".join(row["rungs"])),
        "TIME": duration_text(row["run_seconds"]),
        "GPU SECONDS": f"{row['gpu_seconds']:.0f}" if row["gpu_seconds"] else None,
    }


def _number(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value


def _short(value: Any) -> str | None:
    """Return a value as text that leaves room for others; None for no value."""
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    if value is None or not text:
        return None
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"
