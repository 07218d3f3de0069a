"""Owns reading fast: lines of a log repeat themselves with other numbers, so what was learned of one serves the next.

A line's shape is its text with holes where numbers stand. Which number of a shape is the loss or the step is found by
asking the reader about copies of the line with other numbers in the holes; from then on one match does. Whatever does
not fit a known shape is read in full, so the answer is always the reader's own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from rung.recovery.logs.line_reader import LineReader, read, without_rank
from rung.recovery.logs.lines import text_of
from rung.recovery.logs.reading import Reading
from rung.recovery.logs.tables import is_header

# A shape is worth learning for lines of a usual length only.
MAX_LENGTH = 1000
# Logs have a few dozen shapes; one that has ever new ones is forgotten and learned anew.
MAX_KEYS = 2048
# Lines that differ in a sign or in a number that is a name share a key; learning costs as much as reading ten lines.
MAX_PER_KEY = 12
# Copies of a line to ask about: two numbers of one digit agree in all of them once in a million times.
PROBES = 8

# What changes from line to line although the shape stays: digits, and what bars and columns are filled with.
_CHANGING = bytes(range(0x80, 0x100)) + b"0123456789.eE+ =>#-"
# A number that is not part of a name. What follows a dot or a letter belongs to a version, a file or a word.
_NUMBER = re.compile(
    rb"(?:(?<![A-Za-z0-9_.)\]])[-+])?(?<![A-Za-z0-9_.])\d{1,40}+(?:\.\d{1,40}+)?+(?:[eE][-+]?\d{1,3}(?![A-Za-z0-9_]))?"
)
# A bar's blocks and lines in UTF-8, or blanks.
_FILL = re.compile(rb"(?:\xe2[\x94-\x96][\x80-\xbf]| )+")
_ANY_FILL = rb"(?:\xe2[\x94-\x96][\x80-\xbf]| )++"
# A zero often means something else than other numbers do, so it is no such number.
_COUNT = rb"(?!0(?!\d))\d{1,15}+"
_CLOCK = rb"\d{%d}"
_CLOCK_DIGITS = 2
_DECIMAL = rb"(?![0.]++(?![\d.]))\d{1,40}+(?:\.\d{1,40}+)?+(?:[eE][-+]?\d{1,3})?+"

Make = Callable[[Sequence[bytes]], Reading]
# What a number of the line is in its reading: a field, or one of the names in a field that holds several.
Place = tuple[int, str | None]

_FIELDS = Reading._fields
_WHOLE = frozenset(_FIELDS.index(name) for name in ("step", "total", "resumed_step", "saved_step", "first_epoch"))


class Shapes:
    """Learns the shapes of one log and reads by them, in bounded memory."""

    def __init__(self, reader: LineReader) -> None:
        self._reader = reader
        self._known: dict[bytes, list[Shape]] = {}
        self._tries: dict[bytes, int] = {}

    def read(self, raw: bytes) -> Reading | None:
        """Return what the reader would say of this line."""
        if self._reader.in_table:
            return self._reader.read(text_of(raw))
        key = raw.translate(None, _CHANGING)
        known = self._known.get(key)
        if known is None:
            # Seen for the first time: most lines that come once never come again.
            if len(self._known) >= MAX_KEYS:
                self._known.clear()
                self._tries.clear()
            self._known[key] = []
            return self._reader.read(text_of(raw))
        for match, make in known:
            if found := match(raw):
                return make(found.groups()) if make else None
        self._learn(key, raw)
        return self._reader.read(text_of(raw))

    def _learn(self, key: bytes, raw: bytes) -> None:
        tries = self._tries.get(key, 0)
        if tries < MAX_PER_KEY and len(raw) <= MAX_LENGTH:
            self._tries[key] = tries + 1
            if shape := learn(raw):
                self._known[key].append(shape)


class Shape(NamedTuple):
    """One kind of line: how to match it, and how to make its reading of the numbers in its holes."""

    match: Callable[[bytes], re.Match[bytes] | None]
    # None: lines of this shape report nothing.
    make: Make | None


def learn(raw: bytes) -> Shape | None:
    """Return the shape of a line, or None where its reading does not follow from its numbers one by one."""
    text = text_of(raw)
    if is_header(without_rank(text)):
        return None
    holes = _holes(raw)
    dice = random.Random(raw)  # noqa: S311
    # Short counts too: where a bound on large ones changes the answer, there is no shape.
    copies = [_refilled(raw, holes, dice, short=index % 2 == 0) for index in range(PROBES)]
    truth, said = read(text), [read(text_of(copy)) for copy, _ in copies]
    if truth is None:
        silent = all(answer is None for answer in said)
        return Shape(re.compile(_pattern(raw, holes, ()), re.DOTALL).fullmatch, None) if silent else None
    sources = _sources(truth, said, [numbers for _, numbers in copies])
    if sources is None:
        return None
    used = sorted(set(sources.values()))
    match = re.compile(_pattern(raw, holes, used), re.DOTALL).fullmatch
    make = _maker(truth, {place: used.index(hole) for place, hole in sources.items()})
    found = match(raw)
    return Shape(match, make) if found and str(make(found.groups())) == str(truth) else None


class Hole(NamedTuple):
    """Where a number stands in a line, and what may stand there instead."""

    start: int
    end: int
    pattern: bytes


def _holes(raw: bytes) -> list[Hole]:
    holes = []
    for match in _NUMBER.finditer(raw):
        start, end = match.span()
        sign = len(match[0]) - len(match[0].lstrip(b"-+"))
        digits = match[0][sign:]
        if not digits.isdigit() and float(digits):
            pattern = _DECIMAL
        elif b":" in (raw[start - 1 : start], raw[end : end + 1]) and len(digits) <= _CLOCK_DIGITS:
            pattern = _CLOCK % len(digits)
        elif digits.isdigit() and int(digits):
            pattern = _COUNT
        else:
            continue
        holes.append(Hole(start, end, re.escape(match[0][:sign]) + pattern if sign else pattern))
    return holes


def _pattern(raw: bytes, holes: Sequence[Hole], used: Sequence[int]) -> bytes:
    """Return a pattern for the whole line that gives the numbers of the used holes."""
    pieces, at = [], 0
    for index, hole in enumerate(holes):
        pieces += [_literal(raw[at : hole.start]), b"(%s)" % hole.pattern if index in used else hole.pattern]
        at = hole.end
    return b"".join([*pieces, _literal(raw[at:])])


def _literal(text: bytes) -> bytes:
    """Return a pattern for the text between numbers: bars fill up, and columns are padded."""
    parts, at = [], 0
    for match in _FILL.finditer(text):
        blank = b" {1,%d}+" % len(match[0]) if len(match[0]) > 1 else b" "
        parts += [re.escape(text[at : match.start()]), blank if match[0].isspace() else _ANY_FILL]
        at = match.end()
    return b"".join([*parts, re.escape(text[at:])])


def _refilled(raw: bytes, holes: Sequence[Hole], dice: random.Random, *, short: bool) -> tuple[bytes, list[float]]:
    """Return a copy of the line with other numbers of the same form, and those numbers."""
    pieces, numbers, at = [], [], 0
    for hole in holes:
        mantissa, letter, exponent = raw[hole.start : hole.end].replace(b"E", b"e").partition(b"e")
        if short and hole.pattern is _COUNT:
            mantissa = mantissa[:1]
        number = re.sub(rb"\d", lambda _: b"%d" % dice.randint(1, 9), mantissa) + letter + exponent
        pieces += [raw[at : hole.start], number]
        numbers.append(float(number))
        at = hole.end
    return b"".join([*pieces, raw[at:]]), numbers


def _sources(
    truth: Reading, said: Sequence[Reading | None], numbers: Sequence[Sequence[float]]
) -> dict[Place, int] | None:
    """Return the hole that each part of a reading comes from; None where that cannot be told."""
    expected, answers = _flat(truth), [_flat(answer) for answer in said if answer is not None]
    if len(answers) < len(said) or any(answer.keys() != expected.keys() for answer in answers):
        return None
    found: dict[Place, int] = {}
    for place, value in expected.items():
        column = [answer[place] for answer in answers]
        if all(str(each) == str(value) for each in column):
            continue
        holes = [
            hole
            for hole in range(len(numbers[0]))
            if all(each == row[hole] for each, row in zip(column, numbers, strict=True))
        ]
        if len(holes) != 1:
            return None
        found[place] = holes[0]
    return found


def _flat(reading: Reading) -> dict[Place, object]:
    """Return all parts of a reading side by side."""
    parts: dict[Place, object] = {}
    for index, value in enumerate(reading):
        if isinstance(value, Mapping):
            parts.update({(index, name): each for name, each in value.items()})
        else:
            parts[index, None] = value
    return parts


def _maker(truth: Reading, sources: Mapping[Place, int]) -> Make:
    """Return the function that makes a reading of a line's numbers; it runs once for nearly every line of a log."""
    plain = [(index, hole) for (index, name), hole in sources.items() if name is None and index not in _WHOLE]
    whole = [(index, hole) for (index, name), hole in sources.items() if name is None and index in _WHOLE]
    named = [(index, name, hole) for (index, name), hole in sources.items() if name is not None]
    copied = sorted({index for index, _, _ in named})
    constants: list[Any] = list(truth)
    new = partial(tuple.__new__, Reading)

    def make(groups: Sequence[bytes]) -> Reading:
        numbers = [*map(float, groups)]
        row = constants.copy()
        for index in copied:
            row[index] = dict(constants[index])
        for index, hole in plain:
            row[index] = numbers[hole]
        for index, hole in whole:
            row[index] = int(numbers[hole])
        for index, name, hole in named:
            row[index][name] = numbers[hole]
        return new(row)

    return make
