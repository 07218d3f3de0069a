"""Tests the series of losses of a run, for a plot."""

import math

from hypothesis import given
from hypothesis import strategies as st

from rung.recovery.logs.series import Point, Series

losses = st.lists(st.floats(allow_infinity=True) | st.floats(0, 5), max_size=300)


@given(losses, st.integers(2, 20))
def test_a_series_is_bounded_ordered_and_keeps_the_worst_values(values, limit):
    series = Series(capacity=16)
    for step, loss in enumerate(values):
        series.add(Point(step, loss))
        assert len(series._points) < 16
    points = series.points(limit)
    assert len(points) <= limit
    assert [point.step for point in points] == sorted({point.step for point in points})
    if any(not math.isfinite(loss) for loss in values):
        assert any(not math.isfinite(point.loss) for point in points)
    elif values:
        assert max(point.loss for point in points) == max(values)
