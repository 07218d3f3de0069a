"""Builds the `Reading` of a line from its numbers alone, where a line of the same shape was read before.

A shape is a text with every digit replaced by 0. So the same things stand at the same places in all its lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from rung.recovery.logs.reading import Reading

Span = tuple[int, int]
Pick = Callable[[Any], tuple[Any, ...]]
# Which of the numbers of a line are 0.
Zeros = tuple[bool, ...]
# What `Reading._make` does, without a call and a test of the length for each line.
_new = tuple.__new__
# More plans than this for one shape show that it is none: its other lines are read in full.
MOST_PLANS = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """Says where each field of a reading comes from: a place among its numbers, then constants, then what is made."""

    constants: tuple[object, ...]
    # The places of numbers that are read as whole ones.
    whole: tuple[int, ...]
    # The names of each mapping, and the places of its values.
    mappings: tuple[tuple[tuple[str, ...], Pick], ...]
    # The name of a loss scale that is alone on its line, and its place.
    lone: tuple[str, int] | None
    order: Pick

    def reading(self, numbers: Iterable[float]) -> Reading:
        """Return the reading of a line with these numbers."""
        pool: list[Any] = [*numbers, *self.constants]
        for place in self.whole:
            pool.append(int(pool[place]))
        for names, values in self.mappings:
            pool.append(dict(zip(names, values(pool), strict=False)))
        if self.lone is not None:
            pool.append((self.lone[0], pool[self.lone[1]]))
        return _new(Reading, self.order(pool))


# Stands for a plan that is missing; None stands for lines that have nothing to read.
NO_PLAN = Plan((), (), (), None, tuple)


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of the numbers of a training step among those of its line; None: the line has no such number."""

    # What is read of two lines: layouts with the same texts make the same reading of the same numbers.
    readings: tuple[str, str]
    # How many numbers a line has.
    count: int
    step: int
    loss: int
    lr: int | None
    norm: int | None
    # The numbers that must be the same in all lines: the scale and the epoch.
    same: tuple[int, ...]
    # The terms of the loss.
    terms: tuple[int, ...]


@dataclass(slots=True)
class Shape:
    """What is known of one shape. `is_clear`: the digits decide nothing but numbers, so that there can be plans."""

    is_clear: bool = False
    # Where names have digits in them; each set of such names is a shape of its own.
    kept: tuple[Span, ...] = ()
    guard: Pick | None = None
    guarded: dict[tuple[str, ...], Shape] = field(default_factory=dict)
    # Where the numbers are; None: there are none.
    spans: Sequence[Span] = ()
    slots: Pick | None = None
    plans: dict[Zeros, Plan | None] = field(default_factory=dict)
    # What lines that can be read as columns have in common; "": these cannot.
    template: str = ""
    layouts: dict[Zeros, Layout] = field(default_factory=dict)

    def numbers(self, text: str) -> list[float]:
        return [*map(float, self.slots(text))] if self.slots is not None else []


def pick(places: Iterable[int]) -> Pick:
    """Return a function that takes these places out of a list; one alone is taken twice, so that it is a tuple, too."""
    found = list(places)
    return itemgetter(*(found if len(found) != 1 else found * 2))


def pick_spans(spans: Iterable[Span]) -> Pick | None:
    """Return a function that takes these spans out of a text; None where there are none."""
    found = [slice(*span) for span in spans]
    return itemgetter(*(found if len(found) != 1 else found * 2)) if found else None


def printed(reading: Reading | None) -> str:
    """Return a reading as text, in which NaN is the same as NaN, and 1 is not the same as 1.0."""
    if reading is None:
        return ""
    return repr(reading._replace(values=dict(reading.values), throughput=dict(reading.throughput)))
