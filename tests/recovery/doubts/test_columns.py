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
    ],
)
def test_a_number_has_the_name_before_it(line, found):
    assert [tuple(each) for each in read(line)] == found


def test_a_header_names_the_columns_of_the_rows_below_it():
    assert read("epoch,fit,seconds", "3,nan,12")[0] == ("epoch", 3.0)
    name, value = read("epoch,fit,seconds", "3,nan,12")[1]
    assert name == "fit"
    assert math.isnan(value)


def test_a_value_that_pandas_misses_is_no_number():
    assert [name for name, _ in read("width  cost  final", "64     1.5   NaN")] == ["width", "cost"]
