"""Reads two texts of one shape, and says which number of the reading stands where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

from rung.recovery.logs.line_reader import named_numbers, read
from rung.recovery.logs.reading import Reading
from rung.recovery.shapes.plan import Plan, Span, pick

RUN = re.compile(r"[0-9]+")
# How a number may be written; all that begin at one place are tried.
_WRITTEN = [
    re.compile(text)
    for text in (
        r"[0-9]+",
        r"[0-9]+\.[0-9]*",
        r"[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+",
        r"\.[0-9]+",
        r"\.[0-9]+[eE][-+]?[0-9]+",
    )
]
# Two different digits for each group of digits; a line with more groups is not told apart.
_CODES = [(first, second) for first in "123456789" for second in "123456789" if first != second]

Two = tuple[float, float]


class Unclear(Exception):
    """The digits of the line may decide more than its numbers."""


class Probes:
    """Two texts of one shape, in which each of these groups of digits is a digit of its own, repeated."""

    def __init__(self, text: str, runs: Sequence[Span]) -> None:
        if len(runs) > len(_CODES):
            raise Unclear
        self._texts = [_coded(text, runs, part) for part in (0, 1)]
        self._readings = [read(each) for each in self._texts]
        self._spans: dict[Two, Span] = {}
        for span in _places_of_numbers(text):
            two = self._float(0, span), self._float(1, span)
            known = self._spans.setdefault(two, span)
            # `5`, `5.` and `+5` are the same number; others that look the same here must not be mixed up.
            if two[0] != two[1] and _digits_at(text, known) != _digits_at(text, span):
                raise Unclear

    def _float(self, part: int, span: Span) -> float:
        return float(self._texts[part][slice(*span)])

    def spans(self) -> tuple[Span, ...]:
        """Return where the numbers stand that the reading shows, and those that have a name."""
        found = {self._span(*two) for two in (*self._shown(), *self._named()) if two[0] != two[1]}
        return tuple(sorted(found))

    def plan(self, spans: Sequence[Span]) -> Plan | None:
        """Return where each field of the reading comes from, as a place among the numbers at these spans."""
        one, other = self._readings
        if one is None or other is None:
            if one is not other:
                raise Unclear
            return None
        count = 2 if len(spans) == 1 else len(spans)
        places = {two: spans.index(span) for two, span in self._spans.items() if span in spans}
        return _Inference(places, count).plan(one, other)

    def _span(self, one: float, other: float) -> Span:
        span = self._spans.get((one, other))
        if span is None:
            raise Unclear
        return span

    def _named(self) -> Iterator[Two]:
        first, second = (named_numbers(text) for text in self._texts)
        if [name for name, _ in first] != [name for name, _ in second]:
            raise Unclear
        for (_, one), (_, other) in zip(first, second, strict=True):
            if one != other:
                try:
                    yield float(one), float(other)
                except ValueError:
                    raise Unclear from None

    def _shown(self) -> Iterator[Two]:
        one, other = self._readings
        if one is None or other is None:
            return
        for first, second in zip(_values(one), _values(other), strict=False):
            if _is_number(first) and _is_number(second):
                yield first, second


class _Inference:
    """Builds a plan from two readings. `places`: where the two values of a number stand among the numbers."""

    def __init__(self, places: Mapping[Two, int], count: int) -> None:
        self._places, self._count = places, count
        self._constants: list[object] = []
        self._whole: list[int] = []
        self._mappings: list[tuple[tuple[str, ...], list[int]]] = []
        self._lone: tuple[str, int] | None = None

    def plan(self, one: Reading, other: Reading) -> Plan:
        order = [self._field(*both) for both in zip(one, other, strict=True)]
        # What is made of the numbers comes after the constants.
        made = self._count + len(self._constants)
        ends = {"pool": 0, "whole": made, "mapping": made + len(self._whole)}
        ends["lone"] = ends["mapping"] + len(self._mappings)
        mappings = tuple((names, pick(values)) for names, values in self._mappings)
        places = pick(ends[kind] + place for kind, place in order)
        return Plan(tuple(self._constants), tuple(self._whole), mappings, self._lone, places)

    def _field(self, one: object, other: object) -> tuple[str, int]:
        """Return where the value of a field is found: in which part of the pool, and its place there."""
        if isinstance(one, Mapping) and isinstance(other, Mapping) and one and _is_number(next(iter(one.values()))):
            self._mappings.append((tuple(one), [self._scalar(one[name], other[name]) for name in one]))
            return "mapping", len(self._mappings) - 1
        if (
            isinstance(one, tuple)
            and isinstance(other, tuple)
            and len(one) == 2
            and _is_number(one[1])
            and one != other
        ):
            self._lone = (one[0], self._scalar(one[1], other[1]))
            return "lone", 0
        place = self._scalar(one, other)
        if isinstance(one, int) and place < self._count:
            self._whole.append(place)
            return "whole", len(self._whole) - 1
        return "pool", place

    def _scalar(self, one: object, other: object) -> int:
        """Return the place of a value in the pool: a number of the line, or a constant."""
        if _is_number(one) and _is_number(other) and one != other and repr(one) != repr(other):
            place = self._places.get((one, other))
            if place is None or type(one) is not type(other):
                raise Unclear
            return place
        if repr(one) != repr(other):
            raise Unclear
        self._constants.append(one)
        return self._count + len(self._constants) - 1


def _values(reading: Reading) -> list[object]:
    return [*reading, *reading.values.values(), *reading.throughput.values()]


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _coded(text: str, runs: Sequence[Span], part: int) -> str:
    pieces, at = [], 0
    for (start, end), code in zip(runs, _CODES, strict=False):
        pieces += [text[at:start], code[part] * (end - start)]
        at = end
    return "".join([*pieces, text[at:]])


def _digits_at(text: str, span: Span) -> list[Span]:
    return [run.span() for run in RUN.finditer(text, *span)]


def _places_of_numbers(text: str) -> Iterator[Span]:
    """Yield every span that may be read as a number."""
    for run in RUN.finditer(text):
        for begin in range(max(0, run.start() - 2), run.start() + 1):
            sign = text[begin] in "+-"
            for written in _WRITTEN:
                match = written.match(text, begin + sign)
                if match and match.start() <= run.start() < match.end():
                    yield begin, match.end()
