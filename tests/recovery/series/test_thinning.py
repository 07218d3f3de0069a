"""Tests that the curves of a run stay thin and are never biased."""

import math
import random
from functools import reduce
from itertools import islice, pairwise
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.recovery.logs.reading import Reading
from rung.recovery.series.point import Extremes, Row
from rung.recovery.series.thinning import ROWS_PER_LEVEL, Series, count_of_row, readings_of, thinned

losses = st.lists(st.floats(allow_infinity=True) | st.floats(0, 5), max_size=700)


def series_of(values):
    series = Series()
    for step, loss in enumerate(values):
        series.add(step, Reading(loss=loss))
    return series


@given(losses, st.integers(2, 20))
def test_a_series_is_bounded_ordered_and_keeps_the_lowest_and_the_highest(values, limit):
    points = series_of(values).points(limit)
    assert len(points) <= limit
    assert [point.step for point in points] == sorted({point.step for point in points})
    for point in points:
        assert repr(point.loss) == repr(values[point.step])
    finite = [loss for loss in values if math.isfinite(loss)]
    if len(finite) < len(values):
        assert any(not math.isfinite(point.loss) for point in points)
    elif values:
        assert {min(values), max(values)} <= {point.loss for point in points}


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0, math.inf, -math.inf, math.nan]) | st.floats(), min_size=2))
def test_a_value_beyond_the_extremes_changes_them_as_joining_it_does(values):
    found = Extremes(0, values[0], 0, values[0])
    for step, value in enumerate(values[1:], 1):
        if found.first <= value <= found.last or found.last <= value <= found.first:
            continue
        joined = found.joined(Extremes(step, value, step, value))
        assert repr(found.beyond(step, value)) == repr(joined)
        found = joined


def test_every_row_is_that_of_its_readings_joined_one_by_one():
    dice, series, single = random.Random(11), Series(), []
    for step in range(ROWS_PER_LEVEL * 5):
        found = [dice.choice((None, math.nan, dice.random(), dice.random(), 1.0)) for _ in range(5)]
        loss, norm, scale, lr, speed = found
        speeds = {} if speed is None else {"it/s": speed}
        series.add(step, Reading(loss=loss, grad_norm=norm, scale=scale, lr=lr, throughput=speeds))
        if found[:4] != [None] * 4:
            single.append(
                Row(1, step, *[value if value is None else Extremes(step, value, step, value) for value in found])
            )
    left = iter(single)
    for index, row in enumerate(series.rows):
        joined = reduce(Row.joined, islice(left, count_of_row(index)))
        assert repr(row) == repr(joined) and type(row) is Row
        assert all(each is None or type(each) is Extremes for each in row.extremes)
    assert next(left, None) is None and series.rows[-1].readings > 1


def test_the_mean_of_a_noisy_level_stays_where_it_is():
    dice = random.Random(7)
    points = series_of([2 + dice.random() for _ in range(100_000)]).points()
    assert len(points) > 200
    assert abs(mean(point.loss for point in points) - 2.5) < 0.02


def test_a_spike_of_any_quantity_is_kept():
    series = Series()
    for step in range(50_000):
        series.add(step, Reading(loss=1.0, grad_norm=900.0 if step == 31_007 else 1.0, scale=1.0 if step == 9 else 2.0))
    norms = [row.grad_norm for row in thinned(series.rows, 100)]
    assert max(max(each.first, each.last) for each in norms) == 900.0
    assert (31_007, 900.0) in [value for each in norms for value in each.values()]
    assert min(row.scale.first for row in series.rows) == 1.0


def test_the_number_of_rows_grows_with_the_logarithm_and_the_whole_run_is_shown_evenly():
    series = series_of(float(step) for step in range(60_000))
    assert len(series.rows) <= ROWS_PER_LEVEL * 7
    assert sum(row.readings for row in series.rows) == 60_000
    steps = [point.step for point in series.points(100)]
    assert max(later - sooner for sooner, later in pairwise(steps)) < 60_000 / 25
    assert steps[0] == 0
    assert steps[-1] == 59_999


def test_a_reading_without_a_number_for_a_curve_adds_nothing():
    series = Series()
    series.add(1, Reading(throughput={"it/s": 3.0}))
    series.add(2, Reading(loss=1.0, throughput={"ms/it": 250.0}))
    (point,) = series.points()
    assert (point.step, point.loss, point.speed) == (2, 1.0, 4.0)


@pytest.mark.parametrize(
    "rows", [0, 1, ROWS_PER_LEVEL - 1, ROWS_PER_LEVEL, 3 * ROWS_PER_LEVEL + 7, 60 * ROWS_PER_LEVEL]
)
def test_the_readings_of_many_rows_are_those_of_each(rows: int) -> None:
    assert readings_of(rows) == sum(count_of_row(index) for index in range(rows))
