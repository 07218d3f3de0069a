"""Tests how a batch is split: whole parts only, and the product with the accumulation stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.model.batch_split import largest_split


@pytest.mark.parametrize(
    ("batch", "total", "splits"),
    [
        (24, 24, [12, 8, 6, 4, 3, 2, 1]),
        (12, 24, [8, 6, 4, 3, 2, 1]),
        (12, 48, [8, 6, 4, 3, 2, 1]),
        (9, 9, [3, 1]),
        (7, 7, [1]),
        (7, 21, [3, 1]),
        (1, 8, []),
    ],
)
def test_every_whole_split_comes_in_turn_the_largest_first(batch: int, total: int, splits: list[int]) -> None:
    found: list[int] = []
    while (smaller := largest_split(batch, total, batch - 1)) is not None:
        found.append(smaller)
        batch = smaller
    assert found == splits


@pytest.mark.parametrize(("most", "split"), [(11, 8), (8, 8), (7, 6), (1, 1), (0, 1), (-3, 1)])
def test_a_split_is_no_larger_than_what_may_fit_unless_none_is_that_small(most: int, split: int) -> None:
    assert largest_split(24, 24, most) == split


@given(st.integers(2, 3000), st.integers(1, 40), st.integers(0, 3000))
def test_the_product_stays_and_no_larger_split_is_missed(batch: int, accumulation: int, most: int) -> None:
    total = batch * accumulation
    split = largest_split(batch, total, most)
    smaller = [each for each in range(1, batch) if total % each == 0]
    fitting = [each for each in smaller if each <= most]
    assert split == (max(fitting) if fitting else 1)


def test_a_batch_beyond_all_reason_costs_no_time() -> None:
    assert largest_split(2**53 - 111, 2**53 - 111, 2**53 - 112) is None  # a prime
