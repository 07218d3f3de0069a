"""Makes many random inputs quickly, each from a number, so that a failure can be repeated."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings

# How many inputs `make test` and `make test-long` try for each reader; they are the same ones every time.
FEW, MANY = 1_000, 100_000
COUNTS = pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
LETTERS = "ab:/. \n\t\x00\x1b[2J\u202e\ud800é🚀'\"{}[]&*!|>%@`#-1"


def each(many: int, check: Callable[[random.Random], None]) -> None:
    """Check as many random inputs; name the number of the first that fails."""
    for seed in range(many):
        try:
            check(random.Random(seed))
        except Exception as error:
            raise AssertionError(f"input {seed}: {error!r}") from error


def run(count: int, check: Callable[..., None], *strategies: Any) -> None:
    """Try a property on so many inputs of Hypothesis."""
    settings(max_examples=count)(given(*strategies)(check))()


def text(rng: random.Random, pieces: Sequence[str] = LETTERS, most: int = 12) -> str:
    return "".join(rng.choices(pieces, k=rng.randrange(most + 1)))


def value(rng: random.Random, depth: int = 3) -> Any:
    """Return anything that JSON can hold."""
    kind = rng.randrange(8 if depth else 6)
    if kind == 6:
        return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == 7:
        return {text(rng): value(rng, depth - 1) for _ in range(rng.randrange(4))}
    plain = (None, rng.random() < 0.5, rng.randrange(-(1 << 70), 1 << 70), rng.uniform(-1e300, 1e300), rng.randrange(3))
    return text(rng) if kind == 5 else plain[kind]
