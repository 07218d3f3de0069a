"""Tests the chance of recovery: the mean, and the interval against values that are known exactly."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.recovery.ledger.chance import PRIOR_RUNS, beta_cdf, chance, mean_chance, quantile

parameters = st.floats(0.4, 60)


@pytest.mark.parametrize(
    ("x", "a", "b", "share"),
    [
        (0.3, 1, 1, 0.3),
        (0.3, 3, 1, 0.3**3),
        (0.3, 1, 4, 1 - 0.7**4),
        (0.3, 2, 2, 3 * 0.3**2 - 2 * 0.3**3),
        (0.9, 2, 2, 3 * 0.9**2 - 2 * 0.9**3),
        (0.25, 0.5, 0.5, 1 / 3),  # 2/pi x asin(sqrt(x))
        (0.0, 2, 3, 0.0),
        (1.0, 2, 3, 1.0),
    ],
)
def test_the_beta_distribution_has_its_exact_values(x: float, a: float, b: float, share: float) -> None:
    assert beta_cdf(x, a, b) == pytest.approx(share, rel=1e-9)


@given(st.floats(0.01, 0.99), st.integers(1, 300), st.integers(0, 300))
def test_the_beta_distribution_gives_the_sums_of_binomial_chances(x: float, heads: int, tails: int) -> None:
    """At least `heads` heads of n tosses, added up one by one."""
    n = heads + tails
    exact = math.fsum(math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(heads, n + 1))
    assert beta_cdf(x, heads, tails + 1) == pytest.approx(exact, rel=1e-6, abs=1e-12)


@given(st.floats(0.01, 0.99), parameters, parameters)
def test_a_quantile_is_the_value_below_which_that_share_lies(share: float, a: float, b: float) -> None:
    assert beta_cdf(quantile(share, a, b), a, b) == pytest.approx(share, abs=1e-6)


@given(st.floats(0.05, 0.95), st.integers(0, 30), st.integers(0, 30))
def test_a_chance_lies_in_its_interval_and_counts_the_rules_as_four_runs(prior: float, good: int, bad: int) -> None:
    found = chance(prior, good, good + bad)
    assert 0 <= found.low < found.high <= 1
    assert found.mean == mean_chance(prior, good, good + bad)
    assert found.mean == pytest.approx((PRIOR_RUNS * prior + good) / (PRIOR_RUNS + good + bad))
    assert found.runs == good + bad


def test_more_runs_of_the_same_share_make_the_interval_narrower() -> None:
    few, many = chance(0.5, 2, 4), chance(0.5, 20, 40)
    assert few.mean == many.mean == 0.5
    assert many.high - many.low < few.high - few.low


def test_a_chance_is_written_with_its_interval() -> None:
    assert chance(0.5, 3, 4).describe() == "62 %, between 40 and 83 %"
