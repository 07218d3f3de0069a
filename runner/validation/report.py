"""Renders the report of a validation as text, as Markdown with plots beside it, and as one HTML page.

Text from job files and logs is always cleaned and escaped. The page has no script and loads nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from rung.jobs.model.terminal_text import clean
from rung.recovery.series.point import Point
from rung.recovery.validation.explanations import Answer, gpu_of, memories, paces, same_device
from rung.recovery.validation.verdict import Judgement, Rule, Run, Verdict
from rung.runner.validation.near_table import HEADERS, QUESTION, near_rows, near_sentences
from rung.runner.validation.svg_plot import Curve, plot

NOT_KNOWN = "not known"
COLOURS = {Verdict.PASS: "#2e7d32", Verdict.MARGINAL: "#b26a00", Verdict.FAIL: "#b00020", Verdict.UNDECIDED: "#555555"}
# Characters that have a meaning in Markdown.
MARKDOWN = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {char: f"\\{char}" for char in "|`*[]\\"})
STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:820px;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.3em .7em;text-align:left}"
    ".verdict{color:#fff;padding:.6em 1em;border-radius:4px}svg{width:100%;height:auto;border:1px solid #ddd}"
    "code{background:#f3f3f3;padding:0 .3em}"
)


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


def plots(found: Findings) -> dict[str, str]:
    """Return the plots by their file names."""
    runs = [(run, run.name) for run in (found.baseline, found.candidate) if run is not None]
    drawn = {
        "loss.svg": plot("loss", [Curve(name, _losses(run.figures.points)) for run, name in runs]),
        "gradient-norm.svg": plot("gradient norm", [Curve(name, _norms(run.figures.points)) for run, name in runs]),
    }
    return {name: text for name, text in drawn.items() if text is not None}


def _losses(points: Sequence[Point]) -> list[tuple[int, float]]:
    return [(point.step, point.loss) for point in points if point.loss is not None]


def _norms(points: Sequence[Point]) -> list[tuple[int, float]]:
    return [(point.step, point.grad_norm) for point in points if point.grad_norm is not None]


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
        lines += ["", f"![{name.removesuffix('.svg').replace('-', ' ')}]({name})"]
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
    colour = COLOURS[found.judgement.verdict]
    title = f"Validation of {_html(found.name)}: {found.judgement.verdict}"
    head = "".join(f"<th>{_html(cell)}</th>" for cell in _headers(found))
    body = "".join(
        "<tr>"
        + "".join(f"<td>{_html(cell)}</td>" for cell in (row.what, row.fp32, row.asked, row.difference))
        + "</tr>\n"
        for row in rows(found)
    )
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f"<title>{title}</title><style>{STYLE}</style></head><body>",
            f'<h1>{title}</h1><p class="verdict" style="background:{colour}">{_html(verdict_line(found))}</p>',
            f"<p>{_html(f'{_when(found)}, validation {found.id}: {_bounds(found.rule)}')}</p>",
            f"<table><tr>{head}</tr>\n{body}</table>",
            *(_html_answer(answer) for answer in found.answers),
            _html_near(found.candidate) if found.candidate else "",
            *(f"<h2>{name.removesuffix('.svg').replace('-', ' ')}</h2>\n{svg}" for name, svg in plots(found).items()),
            "</body></html>\n",
        ]
    )


def _html_answer(answer: Answer) -> str:
    causes = "".join(f"<li>{_html(cause)}</li>" for cause in answer.causes)
    text = f"<p>{_html(_sentence(answer.answer))}</p>" if answer.answer else ""
    return f"<h2>{_html(answer.question)}</h2>{text}" + (f"<p>Likely causes:</p><ul>{causes}</ul>" if causes else "")


def _html_near(run: Run) -> str:
    near = run.figures.near
    head = "".join(f"<th>{cell}</th>" for cell in HEADERS)
    body = "".join(
        "<tr>" + "".join(f"<td>{_html(cell)}</td>" for cell in row.cells) + "</tr>\n" for row in near_rows(near)
    )
    table = f"<table><tr>{head}</tr>\n{body}</table>" if body else ""
    said = "".join(f"<li>{_html(_sentence(text))}</li>" for text in near_sentences(near))
    return f"<h2>{_html(QUESTION)}</h2>{table}<ul>{said}</ul>"


def _bounds(rule: Rule) -> str:
    better = f", {rule.better} is better" if rule.better else ""
    return (
        f"{rule.metric}{better}; PASS below {rule.pass_below:g} %, MARGINAL below {rule.marginal_below:g} %, then FAIL"
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _html(text: str) -> str:
    return escape(clean(text))


def _md(text: str) -> str:
    return clean(text).translate(MARKDOWN)
