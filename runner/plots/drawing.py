"""Turns a figure into the shapes of a drawing: where each line, band, mark and text goes. Draws nothing itself."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rung.jobs.model.terminal_text import clean
from rung.runner.plots.axis import Axis, value_axis
from rung.runner.plots.figure import Curve, Figure, Look, Mark, Panel

WIDTH, LEFT, RIGHT = 720, 80, 28
TITLE, STRIP = 30, 34
# The first panel is the highest; each has its title above it.
FIRST_HEIGHT, HEIGHT, PANEL_GAP = 170, 92, 30
# The labels of the bands lie above the first panel.
BAND_LABELS, AXIS = 18, 34
ROW = 22
# Letters in a row of the legend, and in a sentence: a tooltip is no place for a whole log.
ROW_LETTERS, MOST_LETTERS, MOST_NAME = 80, 400, 40
# Two numbered circles beside each other need this much room; further ones go below.
CIRCLE = 20
COLOURS = 6


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class Line:
    """One curve in a panel: pieces of a line, and the places of values that are not finite."""

    name: str
    look: Look
    colour: int
    pieces: tuple[str, ...]
    bad: tuple[float, ...]


@dataclass(frozen=True)
class PanelDrawing:
    title: str
    top: float
    bottom: float
    ticks: tuple[Tick, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class BandDrawing:
    number: int
    left: float
    width: float
    label: str
    tooltip: str


@dataclass(frozen=True)
class MarkDrawing:
    number: int
    kind: str
    at: float
    circle_x: float
    circle_y: float
    sentence: str
    rows: tuple[str, ...] = ()
    y: float = 0.0


@dataclass(frozen=True)
class Key:
    """An entry of the legend."""

    name: str
    look: Look
    colour: int
    x: float
    y: float


@dataclass(frozen=True)
class Drawing:
    title: str
    description: str
    height: float
    top: float
    bottom: float
    steps: tuple[Tick, ...]
    panels: tuple[PanelDrawing, ...]
    bands: tuple[BandDrawing, ...]
    marks: tuple[MarkDrawing, ...]
    keys: tuple[Key, ...]
    width: int = WIDTH
    left: int = LEFT
    right: int = WIDTH - RIGHT


def draw(figure: Figure, *, legend: bool = True) -> Drawing | None:
    """Return the drawing of a figure; None where there is no finite value to show.

    `legend`: the sentences of the marks are rows below the plot; a page can show them as a list of its own instead.
    """
    steps = _step_axis(figure)
    if steps is None:
        return None
    levels = _levels(figure.marks, steps)
    top = TITLE + STRIP + CIRCLE * max(levels, default=0)
    panels, bottom = _panels(figure.panels, steps, top)
    marks, keys = list(_marks(figure.marks, levels, steps)), list(_keys(figure.panels, bottom + AXIS))
    end = keys[-1].y if keys else bottom + AXIS
    if legend:
        marks, end = _with_rows(marks, end)
    return Drawing(
        title=_text(figure.title),
        description=_text(figure.description),
        height=end + 14,
        top=top,
        bottom=bottom,
        # There is no half step.
        steps=tuple(
            Tick(steps.place(step), f"{step:,.0f}") for step in steps.ticks() if abs(step - round(step)) < 1e-6
        ),
        panels=tuple(panels),
        bands=tuple(_bands(figure, steps)),
        marks=tuple(marks),
        keys=tuple(keys),
    )


def _step_axis(figure: Figure) -> Axis | None:
    """Return the axis that all panels share: from the first step with a value to the last."""
    points = [point for panel in figure.panels for curve in panel.curves for point in curve.points]
    if not any(math.isfinite(value) for _, value in points):
        return None
    every = [step for step, _ in points]
    low, high = min(every), max(every)
    return Axis(float(low), float(high if high > low else low + 1), LEFT, WIDTH - RIGHT)


def _panels(panels: Sequence[Panel], steps: Axis, top: float) -> tuple[list[PanelDrawing], float]:
    found: list[PanelDrawing] = []
    bottom = top
    for panel in panels:
        start = bottom + PANEL_GAP + (0 if found else BAND_LABELS)
        end = start + (HEIGHT if found else FIRST_HEIGHT)
        values = value_axis([value for curve in panel.curves for _, value in curve.points], end, start)
        if values is not None:
            found.append(_panel(panel, steps, values))
            bottom = end
    return found, bottom


def _panel(panel: Panel, steps: Axis, values: Axis) -> PanelDrawing:
    title = f"{_text(panel.title)} (log scale)" if values.logarithmic else _text(panel.title)
    ticks = tuple(Tick(values.place(value), _number(value)) for value in values.ticks())
    # What a resume threw away lies below what was kept.
    order = sorted(panel.curves, key=lambda curve: curve.look is not Look.LOST)
    return PanelDrawing(title, values.end, values.start, ticks, tuple(_line(curve, steps, values) for curve in order))


def _line(curve: Curve, steps: Axis, values: Axis) -> Line:
    """Return a curve, in pieces where values that are not finite lie between."""
    pieces: list[list[str]] = [[]]
    bad = []
    for step, value in curve.points:
        x = steps.place(step)
        if math.isfinite(value):
            pieces[-1].append(f"{x:.1f},{values.place(value):.1f}")
        else:
            bad.append(round(x, 1))
            pieces.append([])
    return Line(_name(curve.name), curve.look, curve.colour % COLOURS, _drawn(pieces), tuple(dict.fromkeys(bad)))


def _drawn(pieces: Sequence[Sequence[str]]) -> tuple[str, ...]:
    # A single point would not be seen: it becomes a short line.
    return tuple(" ".join(piece if len(piece) > 1 else [piece[0], piece[0]]) for piece in pieces if piece)


def _bands(figure: Figure, steps: Axis) -> Iterator[BandDrawing]:
    for number, band in enumerate(figure.bands):
        left, right = (steps.place(min(max(step, steps.low), steps.high)) for step in (band.first, band.last))
        if right > left:
            label = _name(band.label)
            # A letter takes about eight pixels where a screen is narrow.
            shown = label if len(label) * 8 < right - left else ""
            yield BandDrawing(number, left, right - left, shown, _text(f"{band.label}: {band.sentence}"))


def _levels(marks: Sequence[Mark], steps: Axis) -> list[int]:
    """Return how many circles below the first row each mark's circle is, so that no two lie on each other."""
    taken: dict[int, list[float]] = {}
    found = []
    for mark in marks:
        at = steps.place(mark.step)
        level = next(each for each in range(len(marks)) if all(abs(at - x) >= CIRCLE for x in taken.get(each, ())))
        taken.setdefault(level, []).append(at)
        found.append(level)
    return found


def _marks(marks: Sequence[Mark], levels: Sequence[int], steps: Axis) -> Iterator[MarkDrawing]:
    for number, (mark, level) in enumerate(zip(marks, levels, strict=True), 1):
        at = round(min(max(steps.place(mark.step), LEFT), WIDTH - RIGHT), 1)
        y = TITLE + STRIP + CIRCLE * level
        yield MarkDrawing(number, mark.kind.value, at, at, y, _text(mark.sentence))


def _keys(panels: Sequence[Panel], top: float) -> Iterator[Key]:
    """Return the legend of the curves in as many rows as it needs."""
    curves = [curve for panel in panels for curve in panel.curves]
    names = {(_key_name(curve), curve.look): curve for curve in curves}
    if len(names) < 2:
        return
    x, y = float(LEFT), top + ROW / 2
    for (name, look), curve in names.items():
        room = 44 + 10 * len(name)
        if x > LEFT and x + room > WIDTH - RIGHT:
            x, y = float(LEFT), y + ROW
        yield Key(name, look, curve.colour % COLOURS, x, y)
        x += room


def _key_name(curve: Curve) -> str:
    return "run again" if curve.look is Look.LOST else _name(curve.name)


def _with_rows(marks: Sequence[MarkDrawing], top: float) -> tuple[list[MarkDrawing], float]:
    """Return the marks with their sentences in rows below each other, and where these end."""
    found = []
    y = top + ROW * 1.4
    for mark in marks:
        rows = tuple(textwrap.wrap(mark.sentence, ROW_LETTERS, break_on_hyphens=False, max_lines=3, placeholder=" …"))
        found.append(MarkDrawing(**{**vars(mark), "rows": rows, "y": y}))
        y += ROW * len(rows)
    return found, y - ROW if marks else top


def _number(value: float) -> str:
    """Return a tick as a person writes it, and short enough for its place: 60k and not 6e+04, 1e-4 and not 0.0001."""
    if 10_000 <= abs(value) < 10_000_000:
        return f"{value / 1000:.4g}k"
    if value == 0 or 0.001 <= abs(value) < 10_000:
        return f"{value:.4g}"
    digits, _, power = f"{value:.2e}".partition("e")
    return f"{float(digits):g}e{int(power)}"


def _name(text: str) -> str:
    plain = clean(text)
    return plain if len(plain) <= MOST_NAME else f"{plain[: MOST_NAME - 1]}…"


def _text(text: str) -> str:
    plain = clean(text)
    return plain if len(plain) <= MOST_LETTERS else f"{plain[: MOST_LETTERS - 1]}…"
