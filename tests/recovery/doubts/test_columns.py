"""Tests that numbers are found with their names, whatever stands between the two."""

import math

import pytest

from rung.recovery.doubts.columns import Columns


def read(*lines):
    columns = Columns()
    return [columns.read(line) for line in lines][-1]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("[035] L 2.5e+04 / gnorm 95", [("l", 2.5e4), ("gnorm", 95.0)]),
        ("I0302 10:00:01.123 4711 fit.py:8] epoch 3 bpr=0.5", [("epoch", 3.0), ("bpr", 0.5)]),
        ("2026-03-01 10:00:00,123 run INFO: -elbo 44.7 | kl 0.2", [("-elbo", 44.7), ("kl", 0.2)]),
        ("| value_loss   | 24.9 |", [("value_loss", 24.9)]),
        ('{"update": 4, "loss": 2.5}', [("update", 4.0), ("loss", 2.5)]),
        ("E3 trn 0.4 per-task [1 nan]", [("trn", 0.4)]),
        ("time 12ms, 5.0%, a loss of nan means a bug", []),
        ("# loss: nan", []),
        ("k   NaN   nan", [("k", math.nan)]),
        ('<row n="4"><cost>1.5</cost><fit> nan </fit></row>', [("cost", 1.5), ("fit", math.nan)]),
        (
            "avg cost per sample = 2e3, gradient magnitude = 1.5",
            [("avg cost per sample", 2e3), ("gradient magnitude", 1.5)],
        ),
        ("batch 4  cost 4,263.5", [("batch", 4.0), ("cost", 4263.5)]),
        ("7;0.5;3e2", [("column 2", 0.5), ("column 3", 300.0)]),
    ],
)
def test_a_number_has_the_name_before_it(line, found):
    assert repr([tuple(each) for each in read(line)]) == repr(found)


def test_a_header_names_the_columns_of_the_rows_below_it():
    assert read("epoch,fit,seconds", "3,nan,12")[0] == ("epoch", 3.0)
    name, value = read("epoch,fit,seconds", "3,nan,12")[1]
    assert name == "fit"
    assert math.isnan(value)


def test_a_value_that_pandas_misses_is_no_number():
    assert [name for name, _ in read("width  cost  final", "64     1.5   NaN")] == ["width", "cost"]


def test_a_row_about_a_thing_has_no_numbers_of_the_run():
    assert read("| Class | IoU |", "| zebra | nan |") == []
    assert read("\u2503 class \u2503 iou \u2503", "\u2502 zebra \u2502 nan \u2502") == []
    assert [tuple(each) for each in read("| Name | Value |", "| cost | 2.5 |")] == [("cost", 2.5)]
    assert [tuple(each) for each in read("round;cost", "3;2.5")] == [("round", 3.0), ("cost", 2.5)]
