"""The course of a run, for a plot."""

import math

from hypothesis import given
from hypothesis import strategies as st

from rung.recovery.logs.lines import Line
from rung.recovery.logs.series import Point, Series, SeriesReader

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


def read(*lines):
    reader = SeriesReader()
    for number, text in enumerate(lines, 1):
        reader.feed(Line(number, text))
    return reader.points()


def test_points_are_read_from_any_format():
    assert read("epoch,step,loss,lr", "0,5,2.5,0.1", "done", "0,6,2.0,0.1") == [
        Point(5, 2.5, None, 0.1),
        Point(6, 2.0, None, 0.1),
    ]


def test_a_job_with_records_is_read_only_by_its_records():
    assert read("step 1 loss 9.0", "rung| step step=1 loss=8.5 grad_norm=2 scale=64", "step 2 loss 8") == [
        Point(1, 9.0),
        Point(1, 8.5, 2.0, None, 64.0),
    ]


def test_a_loss_without_a_known_step_is_not_a_point():
    assert read("loss: 2.5", "{'loss': 1.5, 'epoch': 0.5}") == []
