"""Represents the possible values of an expression without running it: their range, and whether it is a tensor.

A value of which nothing is known has no `origin`, and most rules do not report it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["number", "tensor", "unknown"]
INF = math.inf


@dataclass(frozen=True)
class ValueRange:
    """The lowest and the highest value, the kind of value, and a word for where it comes from."""

    low: float = -INF
    high: float = INF
    kind: Kind = "unknown"
    origin: str = ""

    @property
    def can_be_zero(self) -> bool:
        return bool(self.origin) and self.kind != "number" and self.low <= 0.0 <= self.high

    @property
    def is_count(self) -> bool:
        """Whether it is a sum of 0s and 1s: a whole number, through which no gradient goes."""
        return self.origin in ("sum of comparison", "sum of mask")

    def plus(self, other: ValueRange) -> ValueRange:
        total = self._with(other, _sum(self.low, other.low, -INF), _sum(self.high, other.high, INF))
        # Whoever adds a positive number has thought of zero: with an open lower bound, do not report it.
        guarded = total.low == -INF and any(each.kind == "number" and each.low > 0.0 for each in (self, other))
        return replace(total, origin="") if guarded else total

    def minus(self, other: ValueRange) -> ValueRange:
        less = self.plus(other.negated())
        # Nothing is known of a difference, except for one like `1 - p`.
        fixed = self.low == self.high or other.low == other.high
        return less if fixed and less.low > -INF else replace(less, origin="")

    def joined(self, other: ValueRange) -> ValueRange:
        """Return the range of a value that is one or the other."""
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
        return ValueRange(low, high, kind, _joint_origin(self.origin, other.origin))


UNKNOWN = ValueRange()
NUMBER = ValueRange(kind="number")
COUNT = ValueRange(1.0, INF, "number", "count")


def constant(value: object) -> ValueRange:
    """Return the range of a literal; unknown when it is not a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return UNKNOWN
    try:
        number = float(value)
    except OverflowError:
        number = INF if value > 0 else -INF
    return NUMBER if math.isnan(number) else ValueRange(number, number, "number", "constant")


def exponential(of: ValueRange) -> ValueRange:
    # Never zero: only the upper bound of an exp is reported.
    return ValueRange(max(_exp(of.low), 1e-30), max(_exp(of.high), 1e-30), of.kind, "exp")


def _joint_origin(one: str, other: str) -> str:
    """Return the origin of a value computed from two; empty when nothing is known of one of them."""
    if not one or not other:
        return ""
    return other if one in ("constant", "count", "eps") else one


def _exp(value: float) -> float:
    return INF if value > 700 else math.exp(value)


def _sum(a: float, b: float, if_undefined: float) -> float:
    total = a + b
    return if_undefined if math.isnan(total) else total


def _product(a: float, b: float) -> float:
    product = a * b
    return 0.0 if math.isnan(product) else product


def _raised(value: float, power: float) -> float:
    try:
        return float(value**power)
    except OverflowError:
        return INF
