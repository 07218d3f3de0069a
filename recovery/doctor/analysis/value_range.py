"""Represents what is known of an expression's values without running it: their range, and whether it is a tensor.

The judgement is made to be silent in doubt: what nothing is known of has no `origin`, and most rules let it pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["number", "tensor", "unknown"]
INF = math.inf


@dataclass(frozen=True)
class ValueRange:
    """The lowest and the highest value, what kind of value, and in a word where the knowledge comes from."""

    low: float = -INF
    high: float = INF
    kind: Kind = "unknown"
    origin: str = ""

    @property
    def reaches_nought(self) -> bool:
        return bool(self.origin) and self.kind != "number" and self.low <= 0.0 <= self.high

    @property
    def is_count(self) -> bool:
        """Whether it is a sum of yes and no: a whole number, which no gradient goes through."""
        return self.origin in ("sum of comparison", "sum of mask")

    def plus(self, other: ValueRange) -> ValueRange:
        total = self._with(other, _sum(self.low, other.low, -INF), _sum(self.high, other.high, INF))
        # Who adds something positive has thought of zero; where the lower bound is open, we do not contradict.
        guarded = total.low == -INF and any(each.kind == "number" and each.low > 0.0 for each in (self, other))
        return replace(total, origin="") if guarded else total

    def minus(self, other: ValueRange) -> ValueRange:
        less = self.plus(other.negated())
        # What two values differ by says nothing, but for `1 - p`.
        fixed = self.low == self.high or other.low == other.high
        return less if fixed and less.low > -INF else replace(less, origin="")

    def joined(self, other: ValueRange) -> ValueRange:
        """Return what is known of a value that is the one or the other."""
        return self._with(other, min(self.low, other.low), max(self.high, other.high))

    def negated(self) -> ValueRange:
        return replace(self, low=-self.high, high=-self.low)

    def times(self, other: ValueRange) -> ValueRange:
        corners = [_product(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return self._with(other, min(corners), max(corners))

    def over(self, other: ValueRange) -> ValueRange:
        if other.low <= 0.0 <= other.high:
            same_sign = other.low >= 0.0
            low, high = 0.0 if same_sign and self.low >= 0.0 else -INF, 0.0 if same_sign and self.high <= 0.0 else INF
            return self._with(other, low, high)
        part = self.times(ValueRange(1 / other.high, 1 / other.low, other.kind, other.origin))
        return replace(part, low=max(part.low, 1e-30)) if self.low > 0.0 and other.low > 0.0 else part

    def to_the(self, power: float) -> ValueRange:
        if power > 0 and power % 2 == 0:
            ends = _raised(abs(self.low), power), _raised(abs(self.high), power)
            low = 0.0 if self.low <= 0.0 <= self.high else min(ends)
            # A setting that is squared is not zero.
            return ValueRange(max(low, 1e-30) if self.kind == "number" else low, max(ends), self.kind, "square")
        if self.low >= 0.0 and power > 0:
            return replace(self, low=_raised(self.low, power), high=_raised(self.high, power))
        return ValueRange(0.0 if self.low >= 0.0 else -INF, INF, self.kind, "")

    def _with(self, other: ValueRange, low: float, high: float) -> ValueRange:
        kinds = {self.kind, other.kind}
        kind: Kind = "tensor" if "tensor" in kinds else "unknown" if "unknown" in kinds else "number"
        return ValueRange(low, high, kind, _of_both(self.origin, other.origin))


UNKNOWN = ValueRange()
NUMBER = ValueRange(kind="number")
COUNT = ValueRange(1.0, INF, "number", "count")


def constant(value: object) -> ValueRange:
    """Return the extent of a literal; whatever is no number is unknown."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return UNKNOWN
    try:
        number = float(value)
    except OverflowError:
        number = INF if value > 0 else -INF
    return NUMBER if math.isnan(number) else ValueRange(number, number, "number", "constant")


def exponential(of: ValueRange) -> ValueRange:
    # Never zero: exp is judged by its upper bound, and what is computed from it not again by its lower bound.
    return ValueRange(max(_exp(of.low), 1e-30), max(_exp(of.high), 1e-30), of.kind, "exp")


def _of_both(one: str, other: str) -> str:
    """Return where a value made of two comes from: nowhere, when nothing is known of one of them."""
    if not one or not other:
        return ""
    return other if one in ("constant", "count", "eps") else one


def _exp(value: float) -> float:
    return INF if value > 700 else math.exp(value)


def _sum(a: float, b: float, doubt: float) -> float:
    total = a + b
    return doubt if math.isnan(total) else total


def _product(a: float, b: float) -> float:
    product = a * b
    return 0.0 if math.isnan(product) else product


def _raised(value: float, power: float) -> float:
    try:
        return float(value**power)
    except OverflowError:
        return INF
