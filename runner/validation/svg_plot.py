"""Draws small plots as SVG text: lines over steps, and a mark for each value that is not finite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rung.jobs.model.terminal_text import clean

WIDTH, HEIGHT = 760, 280
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 34, 36
COLOURS = ("#1f6fb2", "#d1622b", "#4a8f3c")
# Above this ratio of the largest to the smallest value, a curve looks flat on a linear axis.
LOGARITHMIC = 50.0


@dataclass(frozen=True)
class Curve:
    """Named values over steps."""

    name: str
    points: Sequence[tuple[int, float]]


@dataclass(frozen=True)
class _Axes:
    steps: tuple[int, int]
    values: tuple[float, float]
    logarithmic: bool

    def x(self, step: int) -> float:
        first, last = self.steps
        return LEFT + (step - first) / max(1, last - first) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = (self._scaled(each) for each in self.values)
        share = (self._scaled(value) - low) / (high - low) if high > low else 0.5
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.logarithmic else value

    def ticks(self) -> list[float]:
        low, high = (self._scaled(each) for each in self.values)
        marks = [low + (high - low) * part / 4 for part in range(5)]
        return [10**mark for mark in marks] if self.logarithmic else marks


def plot(title: str, curves: Sequence[Curve]) -> str | None:
    """Return the plot of some curves; None where there is no finite value to show."""
    axes = _axes(curves)
    if axes is None:
        return None
    name = escape(clean(title))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<g font-family="sans-serif" font-size="11" fill="#333333"><text x="{LEFT}" y="16" font-weight="bold">'
        f"{name}{' (logarithmic)' if axes.logarithmic else ''}</text>",
        *_frame(axes),
        "</g>",
    ]
    for index, curve in enumerate(curves):
        parts += _curve(curve, axes, COLOURS[index % len(COLOURS)], index)
    return "\n".join([*parts, "</svg>"])


def _axes(curves: Sequence[Curve]) -> _Axes | None:
    steps = [step for curve in curves for step, _ in curve.points]
    values = [value for curve in curves for _, value in curve.points if math.isfinite(value)]
    if not values:
        return None
    low, high = min(values), max(values)
    return _Axes((min(steps), max(steps)), (low, high), low > 0 and high / low > LOGARITHMIC)


def _frame(axes: _Axes) -> list[str]:
    lines = []
    for value in axes.ticks():
        y = axes.y(value)
        lines.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    for step in dict.fromkeys((axes.steps[0], sum(axes.steps) // 2, axes.steps[1])):
        lines.append(f'<text x="{axes.x(step):.1f}" y="{HEIGHT - 14}" text-anchor="middle">step {step}</text>')
    return lines


def _curve(curve: Curve, axes: _Axes, colour: str, index: int) -> list[str]:
    """Draw one curve, in pieces where values that are not finite lie between, each marked at the top."""
    pieces: list[list[str]] = [[]]
    marks = []
    for step, value in curve.points:
        if math.isfinite(value):
            pieces[-1].append(f"{axes.x(step):.1f},{axes.y(value):.1f}")
            continue
        pieces.append([])
        x = axes.x(step)
        marks.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{TOP + 8}" stroke="#c00000" stroke-width="2"/>')
    x = LEFT + 330 + index * 190
    legend = f'<line x1="{x}" x2="{x + 18}" y1="12" y2="12" stroke="{colour}" stroke-width="3"/>'
    name = escape(clean(curve.name)[:24])
    text = f'<text x="{x + 24}" y="16" font-family="sans-serif" font-size="11" fill="#333333">{name}</text>'
    drawn = [
        f'<polyline points="{" ".join(piece)}" fill="none" stroke="{colour}" stroke-width="1.4"/>'
        for piece in pieces
        if piece
    ]
    return [*drawn, *marks, legend, text]
