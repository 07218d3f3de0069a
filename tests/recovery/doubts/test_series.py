"""Tests that the numbers of a log are collected by name."""

from rung.recovery.doubts.series import collect
from rung.recovery.logs.lines import Line


def series(*texts):
    return collect(Line(number, text) for number, text in enumerate(texts, 1))


def test_a_series_has_the_values_of_one_name_with_their_steps():
    (cost,) = series("step 1 cost 3.5", "step 2 cost 3.0", "step 2 cost 3.0")
    assert [(point.value, point.step, point.at) for point in cost.points] == [(3.5, 1, "step 1"), (3.0, 2, "step 2")]
    assert cost.leads


def test_ranks_are_not_mixed():
    found = series("[rank0]: step 1 loss 0.5", "[rank1]: step 1 loss 40.0", "[rank0]: step 2 loss 0.4")
    assert [each.values for each in found] == [[0.5, 0.4], [40.0]]


def test_a_loss_without_a_name_of_its_own_is_taken_from_the_reader():
    header = "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size"
    row = (
        "        {}/100      6.54G      {}      1.234      1.111         12        640: 10%| 5/50 [00:10<01:30, 4it/s]"
    )
    found = series(header, row.format(1, 2.5), row.format(2, 2.25))
    assert [2.5, 2.25] in [each.values for each in found]
