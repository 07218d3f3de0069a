"""Keeps the points of a run for a plot: step, loss, gradient norm, lr and scale, in bounded memory."""

from __future__ import annotations

import math
from typing import NamedTuple

# Twice the number of points in a plot, because a full series is halved.
CAPACITY = 1000
LIMIT = 500


class Point(NamedTuple):
    step: int
    loss: float
    grad_norm: float | None = None
    lr: float | None = None
    scale: float | None = None


class Series:
    """Keeps points of a run of any length; when it is full, every two neighbours are merged into one."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._stride = 1
        self._seen = 0
        self._points: list[Point] = []

    def add(self, point: Point) -> None:
        # The last point is merged with new ones until it covers as many readings as the others.
        if self._seen % self._stride and self._points:
            self._points[-1] = _worse(self._points[-1], point)
        else:
            self._points.append(point)
        self._seen += 1
        if len(self._points) >= self._capacity:
            self._points = _halved(self._points)
            self._stride *= 2

    def points(self, limit: int = LIMIT) -> list[Point]:
        """Return at most `limit` points, in the order they came."""
        points = self._points
        while len(points) > limit:
            points = _halved(points)
        return list(points)


def _halved(points: list[Point]) -> list[Point]:
    pairs = [_worse(first, second) for first, second in zip(points[::2], points[1::2], strict=False)]
    return pairs + points[len(pairs) * 2 :]


def _worse(one: Point, other: Point) -> Point:
    """Return the point to keep in a plot: the one whose loss is not finite, else the higher loss."""
    if not math.isfinite(one.loss):
        return one
    return other if not other.loss <= one.loss else one
