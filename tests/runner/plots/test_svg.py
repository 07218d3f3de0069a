"""Tests the plot: what it shows, in which place, and that hostile text stays text."""

import math
import re
from xml.etree import ElementTree

import pytest

from rung.runner.plots.axis import LARGEST, value_axis
from rung.runner.plots.drawing import WIDTH, draw
from rung.runner.plots.figure import Band, Curve, Figure, Look, Mark, MarkKind, Panel
from rung.runner.plots.svg import DARK, embedded, plot_css, stand_alone

EVIL = "x</svg><script>alert(1)</script>\x1b[31m\u202e\"onload='a'"


def one(*points, **options):
    return Figure("a run", (Panel("loss", (Curve("a", points, **options),)),))


def test_values_that_are_not_finite_are_marked_and_break_the_line():
    svg = stand_alone(one((1, 2.0), (2, math.nan), (3, 1.0), (4, math.inf)))
    assert svg.count('class="rung-plot-bad"') == 2
    assert svg.count("<polyline") == 2
    assert "nan" not in re.sub(r"<style>.*</style>", "", svg, flags=re.DOTALL)


@pytest.mark.parametrize("figure", [Figure("none", ()), one(), one((1, math.nan)), one((1, math.inf), (2, math.nan))])
def test_without_a_finite_value_there_is_no_plot(figure):
    assert stand_alone(figure) is None
    assert embedded(figure) is None


def test_a_wide_range_is_drawn_on_a_log_scale():
    assert "(log scale)" in stand_alone(one((1, 100.0), (2, 0.01)))
    assert "(log scale)" not in stand_alone(one((1, 100.0), (2, -0.01)))
    assert "(log scale)" not in stand_alone(one((1, 2.0), (2, 1.0)))


@pytest.mark.parametrize(
    "values", [[1e308, -1e308], [5e-324, 1e308], [0.0, 0.0], [7.0], [-3.0, -2.9999999], [1e17, 1e17 + 16]]
)
def test_every_finite_value_has_its_place_and_every_axis_its_ticks(values):
    axis = value_axis(values, 100.0, 0.0)
    assert all(-0.1 <= axis.place(value) <= 100.1 for value in values)
    assert 1 <= len(axis.ticks()) <= 15
    assert all(abs(tick) <= LARGEST and -0.1 <= axis.place(tick) <= 100.1 for tick in axis.ticks())


def whole():
    curves = [Curve(f"trial of rung number {n}", [(0, 1.0), (900, 2.0)], Look.TRIAL, n) for n in range(7)]
    lost = Curve("attempt 1, run again", [(500, 3.0), (520, math.nan)], Look.LOST)
    panels = (
        Panel("loss", (lost, Curve("own", [(0, 3.0), (1000, 1.0)]), *curves)),
        Panel("lr", (Curve("own", [(0, 0.1), (1000, 0.1)]),)),
    )
    marks = tuple(Mark(MarkKind.FAULT, 500 + n, f"fault number {n}, " + "a long story " * 20) for n in range(3))
    bands = (Band("1", 0, 500, "as submitted"), Band("2 lower_lr", 500, 1000, EVIL))
    return Figure(EVIL, panels, bands, (*marks, Mark(MarkKind.RUNG, 490, EVIL)), description=EVIL)


def test_everything_lies_on_the_canvas_and_no_circle_on_another():
    drawing = draw(whole())
    assert all(key.x >= 0 and key.x + 28 + 7 * len(key.name) <= WIDTH for key in drawing.keys)
    assert {key.name for key in drawing.keys} >= {"own", "run again", "trial of rung number 6"}
    circles = [(mark.circle_x, mark.circle_y) for mark in drawing.marks]
    assert all(math.dist(a, b) >= 18 for a in circles for b in circles if a is not b)
    assert all(mark.rows and mark.y < drawing.height for mark in drawing.marks)
    assert [panel.title for panel in drawing.panels] == ["loss", "lr"]
    assert drawing.panels[0].bottom < drawing.panels[1].top
    # What was thrown away lies below what was kept.
    assert drawing.panels[0].lines[0].look is Look.LOST


def test_hostile_text_is_shown_as_text():
    for svg in (stand_alone(whole()), embedded(whole(), legend=True)):
        assert "<script" not in svg
        assert "\x1b" not in svg
        assert "\u202e" not in svg
        root = ElementTree.fromstring(svg)
        assert root.find("{*}title").text.startswith("x</svg><script>alert(1)</script>")
        assert not [name for each in root.iter() for name in each.attrib if name.startswith("on")]


def test_a_plot_in_a_page_has_no_style_of_its_own_and_says_what_it_is():
    svg = embedded(whole())
    assert "style" not in svg
    assert svg.count("fault number 0") == 1  # as a tooltip; the page has the list
    assert 'role="img"' in svg
    assert set(re.findall(r"\.(rung-plot[\w-]*)", plot_css())) >= set(
        re.findall(r"rung-plot-(?:c|dot|mark|bad)[\w-]*", svg)
    )


def test_colours_follow_the_system_unless_one_is_asked_for():
    assert "prefers-color-scheme: dark" in stand_alone(whole())
    assert "prefers-color-scheme" not in stand_alone(whole(), DARK)
    assert plot_css(DARK).count("#0d1117") >= 1


def test_an_axis_of_few_steps_names_whole_ones_once_and_a_single_point_is_a_dot():
    drawn = draw(one((11, 0.7), (12, math.nan), (12, 0.69)))
    assert [tick.text for tick in drawn.steps] == ["11", "12"]
    assert stand_alone(one((11, 0.7), (12, math.nan), (12, 0.69))).count("rung-plot-point rung-plot") == 2


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([1e-4, 1e-4], ["1e-4"]),
        ([1.005e-4, 1.035e-4], ["1.01e-4", "1.02e-4", "1.03e-4"]),
        ([0.0, 0.0], ["0"]),
        ([65536.0, 65536.0], ["65.54k"]),
        ([0.0, 2e8], ["0", "5e7", "1e8", "1.5e8", "2e8"]),
    ],
)
def test_ticks_are_short_and_a_value_that_never_changes_has_one(values, ticks):
    (panel,) = draw(one(*enumerate(values))).panels
    assert [tick.text for tick in panel.ticks] == ticks
