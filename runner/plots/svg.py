"""Renders a figure as SVG: as a file of its own, or as a part of a page that brings the style."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from rung.runner.plots.drawing import draw
from rung.runner.plots.figure import Figure
from rung.runner.plots.templates import environment

HERE = Path(__file__).parent
LIGHT, DARK = "light", "dark"


def stand_alone(figure: Figure, theme: str | None = None) -> Markup | None:
    """Return a figure as an SVG file; None where there is nothing to show.

    It is light or dark as the reader's system is, unless `theme` says which.
    """
    return _rendered(figure, style=plot_css(theme), legend=True)


def embedded(figure: Figure, *, legend: bool = False) -> Markup | None:
    """Return a figure for a page whose stylesheet has `plot_css()`: without a style, so that a strict policy allows it.

    Without `legend` the page shows the sentences of the marks itself, numbered from 1.
    """
    return _rendered(figure, style=None, legend=legend)


def _rendered(figure: Figure, style: Markup | None, *, legend: bool) -> Markup | None:
    drawing = draw(figure, legend=legend)
    if drawing is None:
        return None
    template = environment(HERE).get_template("plot.svg.j2")
    return Markup(template.render(plot=drawing, style=style))  # noqa: S704  (the template escapes)


def plot_css(theme: str | None = None) -> Markup:
    """Return the stylesheet of plots; it names only classes that begin with `rung-plot`."""
    # The text of a file of ours, without a value from outside.
    return Markup(environment(HERE).get_template("plot.css.j2").render(theme=theme))  # noqa: S704
