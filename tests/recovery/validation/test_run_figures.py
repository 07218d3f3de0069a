"""Tests the points of a run that are read for a plot."""

from rung.recovery.logs.lines import Line
from rung.recovery.series.point import Point
from rung.recovery.validation.run_figures import FigureReader


def read(*lines):
    reader = FigureReader()
    for number, text in enumerate(lines, 1):
        reader.feed(Line(number, text))
    return list(reader.figures().points)


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


def test_a_bar_that_is_drawn_again_is_one_point():
    assert read("50%|#### | 5/10 [00:01<00:01, loss=2.5]", "50%|#### | 5/10 [00:01<00:01, loss=2.5]") == [Point(5, 2.5)]
