"""Computes how likely a rung is to end in a recovery, from counts: a Beta distribution, its mean and its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

# What the rules say counts as much as this many runs, so that one or two lucky runs do not outweigh a diagnosis.
PRIOR_RUNS = 4
# The share of the distribution that lies between `low` and `high`; a tenth is left out on each side.
INTERVAL = 0.8
# Halvings of the interval from 0 to 1: more than the digits of a percentage need.
HALVINGS = 40
# The continued fraction of the incomplete Beta function has settled long before this.
MOST_TERMS, SETTLED = 300, 1e-12


@dataclass(frozen=True)
class Chance:
    """The probability of recovery, and between which values it lies with 80 %. `runs` is how many runs it is from."""

    mean: float
    low: float
    high: float
    runs: int

    def describe(self) -> str:
        return f"{100 * self.mean:.0f} %, between {100 * self.low:.0f} and {100 * self.high:.0f} %"


def mean_chance(prior: float, recovered: int, runs: int) -> float:
    """Return the mean alone, which orders the rungs: what the rules say as PRIOR_RUNS runs, plus the runs seen."""
    return (PRIOR_RUNS * prior + recovered) / (PRIOR_RUNS + runs)


def chance(prior: float, recovered: int, runs: int) -> Chance:
    """Return the chance of recovery after `recovered` of `runs` runs, where the rules alone would say `prior`."""
    good, bad = PRIOR_RUNS * prior + recovered, PRIOR_RUNS * (1 - prior) + runs - recovered
    tail = (1 - INTERVAL) / 2
    return Chance(mean_chance(prior, recovered, runs), quantile(tail, good, bad), quantile(1 - tail, good, bad), runs)


def quantile(share: float, a: float, b: float) -> float:
    """Return the value below which this share of the Beta distribution lies."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if beta_cdf(middle, a, b) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the share of the Beta distribution below x: the regularized incomplete Beta function."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    # The fraction settles fast only on this side of the mean.
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_cdf(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / (a * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction 1 + d1/(1 + d2/(1 + ...)) by Lentz's method."""
    value, above, below = 1.0, 1.0, 0.0
    for term in range(1, MOST_TERMS):
        factor = _term(term, x, a, b)
        below = 1 / (1 + factor * below)
        above = 1 + factor / above
        value *= above * below
        if abs(above * below - 1) < SETTLED:
            break
    return value


def _term(term: int, x: float, a: float, b: float) -> float:
    half, odd = divmod(term, 2)
    if odd:
        return -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
    return half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
