"""Renders the report of a validation as text, as Markdown with plots beside it, and as one HTML page.

Text from job files and logs is always cleaned and escaped. The page has no script and loads nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rung.jobs.model.terminal_text import clean
from rung.recovery.series.point import Point
from rung.recovery.validation.explanations import Answer, gpu_of, memories, paces, same_device
from rung.recovery.validation.verdict import Judgement, Rule, Run
from rung.runner.plots.figure import PANELS, Curve, Figure, Panel
from rung.runner.plots.svg import embedded, plot_css, stand_alone
from rung.runner.plots.templates import environment
from rung.runner.validation.near_table import HEADERS, QUESTION, near_rows, near_sentences

NOT_KNOWN = "not known"
CURVES = "curves.svg"
# Characters that have a meaning in Markdown.
MARKDOWN = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {char: f"\\{char}" for char in "|`*[]\\"})


@dataclass(frozen=True)
class Findings:
    """The results of a validation."""

    id: str
    name: str
    rule: Rule
    judgement: Judgement
    baseline: Run
    # None: not run, because there was no baseline to compare with.
    candidate: Run | None
    answers: tuple[Answer, ...]
    at: float


@dataclass(frozen=True)
class Row:
    what: str
    fp32: str
    asked: str
    difference: str = ""


def rows(found: Findings) -> list[Row]:
    """Return the table of the report: what was compared, in both runs."""
    one, other = found.baseline, found.candidate
    if other is None:
        return [Row(found.rule.metric, _number(one.value(found.rule.metric)), "not run")]
    return [
        _metric_row(found, one, other),
        _pace_row(one, other),
        _memory_row(one, other),
        *_count_rows(one, other),
        Row("computed on", f"{one.host}: {gpu_of(one)}", f"{other.host}: {gpu_of(other)}"),
        Row("ended", _ended(one), _ended(other)),
    ]


def _metric_row(found: Findings, one: Run, other: Run) -> Row:
    difference = found.judgement.difference
    shown = f"{difference:+.2f} %" if difference is not None else ""
    return Row(found.rule.metric, _number(one.value(found.rule.metric)), _number(other.value(found.rule.metric)), shown)


def _pace_row(one: Run, other: Run) -> Row:
    found = paces(one, other)
    if found is None:
        return Row("time per step", NOT_KNOWN, NOT_KNOWN)
    first, second, _ = found
    change = f"{(second / first - 1) * 100:+.1f} %" if same_device(one, other) else "another GPU"
    return Row("time per step", f"{first * 1000:.4g} ms", f"{second * 1000:.4g} ms", change)


def _memory_row(one: Run, other: Run) -> Row:
    found = memories(one, other)
    if found is None:
        return Row("peak memory", NOT_KNOWN, NOT_KNOWN)
    first, second, whose = found
    change = f"{(second / first - 1) * 100:+.1f} %"
    return Row(f"peak {whose}", f"{first / 2**20:,.0f} MiB", f"{second / 2**20:,.0f} MiB", change)


def _count_rows(one: Run, other: Run) -> Iterator[Row]:
    yield Row(
        "losses that are not finite", *(f"{run.figures.bad_losses} of {run.figures.losses}" for run in (one, other))
    )
    yield Row("skipped updates", *(_count(run.figures.skipped) for run in (one, other)))
    yield Row("gradient norm, median", *(_number(run.figures.median_norm) for run in (one, other)))
    yield Row("gradient norm, largest", *(_number(run.figures.largest_norm) for run in (one, other)))
    if one.figures.bad_norms or other.figures.bad_norms:
        yield Row("norms that are not finite", *(str(run.figures.bad_norms) for run in (one, other)))


def _count(value: int | None) -> str:
    return NOT_KNOWN if value is None else str(value)


def _number(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.6g}"


def _ended(run: Run) -> str:
    step = run.figures.progress.furthest_step
    where = f" at step {run.fault.step}" if run.fault is not None and run.fault.step is not None else ""
    how = f"{run.fault.kind}{where}" if run.fault is not None else run.ended
    return how if step is None else f"{how} (step {step})"


def verdict_line(found: Findings) -> str:
    """Return the verdict line: `verdict: PASS mmgcn: ...`."""
    return clean(f"verdict: {found.judgement.verdict} {found.name}: {found.judgement.because}")


def curves(found: Findings) -> Figure:
    """Return the plot of both runs: what they have of loss, gradient norm, scale and lr."""
    runs = [run for run in (found.baseline, found.candidate) if run is not None]
    panels = [
        Panel(title, tuple(Curve(run.name, _values(run.figures.points, name), colour=n) for n, run in enumerate(runs)))
        for name, title in PANELS.items()
    ]
    shown = [panel for panel in panels if any(curve.points for curve in panel.curves)]
    return Figure(f"Validation of {found.name}", tuple(shown), description=verdict_line(found))


def plots(found: Findings) -> dict[str, str]:
    """Return the plots by their file names."""
    drawn = stand_alone(curves(found))
    return {CURVES: drawn} if drawn is not None else {}


def _values(points: Sequence[Point], name: str) -> list[tuple[int, float]]:
    found = [(point.step, getattr(point, name)) for point in points]
    return [(step, value) for step, value in found if value is not None]


def _headers(found: Findings) -> tuple[str, str, str, str]:
    asked = found.candidate.name if found.candidate else "as asked"
    return "", f"fp32 ({found.baseline.job_id})", f"{asked} ({_id(found.candidate)})", "difference"


def _id(run: Run | None) -> str:
    return run.job_id if run else "not run"


def _when(found: Findings) -> str:
    return datetime.fromtimestamp(found.at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def markdown(found: Findings) -> str:
    """Return the report as Markdown; its plots are in files beside it."""
    lines = [f"# Validation of {_md(found.name)}: {found.judgement.verdict}", "", _md(verdict_line(found)), ""]
    lines += [_md(f"{_when(found)}, validation {found.id}: {_bounds(found.rule)}"), ""]
    lines.append("| " + " | ".join(_md(cell) for cell in _headers(found)) + " |")
    lines.append("| --- | --- | --- | --- |")
    for row in rows(found):
        lines.append("| " + " | ".join(_md(cell) for cell in (row.what, row.fp32, row.asked, row.difference)) + " |")
    for answer in found.answers:
        lines += ["", f"## {answer.question}", ""]
        lines += [f"{_md(_sentence(answer.answer))}", ""] if answer.answer else []
        lines += [f"- {_md(cause)}" for cause in answer.causes]
    lines += _md_near(found.candidate) if found.candidate else []
    for name in plots(found):
        lines += ["", f"![{name.removesuffix('.svg')}]({name})"]
    return "\n".join(lines) + "\n"


def _md_near(run: Run) -> list[str]:
    near, lines = run.figures.near, ["", f"## {QUESTION}", ""]
    if near is not None and near.modules:
        lines += ["| " + " | ".join(HEADERS) + " |", "| --- | --- | --- |"]
        lines += ["| " + " | ".join(map(_md, row.cells)) + " |" for row in near_rows(near)]
        lines.append("")
    return [*lines, *(f"- {_md(_sentence(text))}" for text in near_sentences(near))]


def html(found: Findings) -> str:
    """Return the report as one page that needs nothing else."""
    near = found.candidate.figures.near if found.candidate else None
    return (
        environment(Path(__file__).parent)
        .get_template("report.html.j2")
        .render(
            css=plot_css(),
            title=f"Validation of {found.name}: {found.judgement.verdict}",
            verdict=found.judgement.verdict.lower(),
            line=verdict_line(found),
            about=f"{_when(found)}, validation {found.id}: {_bounds(found.rule)}",
            headers=_headers(found),
            rows=rows(found),
            answers=[(each.question, each.answer and _sentence(each.answer), each.causes) for each in found.answers],
            near_question=QUESTION if found.candidate else "",
            near_headers=HEADERS,
            near_rows=near_rows(near),
            near_sentences=[_sentence(text) for text in near_sentences(near)],
            plot=embedded(curves(found), legend=True),
        )
    )


def _bounds(rule: Rule) -> str:
    better = f", {rule.better} is better" if rule.better else ""
    return (
        f"{rule.metric}{better}; PASS below {rule.pass_below:g} %, MARGINAL below {rule.marginal_below:g} %, then FAIL"
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _md(text: str) -> str:
    return clean(text).translate(MARKDOWN)
