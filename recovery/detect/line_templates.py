"""Reads log lines fast: lines repeat with other numbers, so a template learned from one line reads the next.

A template is the text of a line with slots for its numbers. To learn which slot is the loss or the step, the reader
reads copies of the line with other numbers in the slots. A line that fits no template is read in full, so the result
is always that of the reader.
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

# A template is worth learning for lines of a usual length only.
MAX_LENGTH = 1000
# Logs have a few dozen shapes; one that has ever new ones is forgotten and learned anew.
MAX_KEYS = 2048
# Lines that differ in a sign or in a number that is a name share a key; learning costs as much as reading ten lines.
MAX_PER_KEY = 12
# Copies of a line to ask about: two numbers of one digit agree in all of them once in a million times.
PROBES = 8

# What changes from line to line although the template stays: digits, and what bars and columns are filled with.
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
FieldPath = tuple[int, str | None]

_FIELDS = Reading._fields
_WHOLE = frozenset(_FIELDS.index(name) for name in ("step", "total", "resumed_step", "saved_step", "first_epoch"))


class LineTemplates:
    """Learns the templates of one log and reads with them, in bounded memory."""

    def __init__(self, reader: LineReader) -> None:
        self._reader = reader
        self._known: dict[bytes, list[LineTemplate]] = {}
        self._tries: dict[bytes, int] = {}

    def read(self, raw: bytes) -> Reading | None:
        """Return the same reading as the reader would."""
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
            if template := learn(raw):
                self._known[key].append(template)


class LineTemplate(NamedTuple):
    """One kind of line: how to match it, and how to make a reading from the numbers in its slots."""

    match: Callable[[bytes], re.Match[bytes] | None]
    # None: lines of this template report nothing.
    make: Make | None


def learn(raw: bytes) -> LineTemplate | None:
    """Return the template of a line, or None where its reading does not follow from its numbers one by one."""
    text = text_of(raw)
    if is_header(without_rank(text)):
        return None
    slots = _number_slots(raw)
    rng = random.Random(raw)  # noqa: S311
    # Short counts too: where a bound on large ones changes the answer, there is no template.
    copies = [_refilled(raw, slots, rng, short=index % 2 == 0) for index in range(PROBES)]
    original, probe_readings = read(text), [read(text_of(copy)) for copy, _ in copies]
    if original is None:
        silent = all(answer is None for answer in probe_readings)
        return LineTemplate(re.compile(_pattern(raw, slots, ()), re.DOTALL).fullmatch, None) if silent else None
    sources = _sources(original, probe_readings, [numbers for _, numbers in copies])
    if sources is None:
        return None
    used = sorted(set(sources.values()))
    match = re.compile(_pattern(raw, slots, used), re.DOTALL).fullmatch
    make = _maker(original, {place: used.index(slot) for place, slot in sources.items()})
    found = match(raw)
    return LineTemplate(match, make) if found and str(make(found.groups())) == str(original) else None


class NumberSlot(NamedTuple):
    """Where a number stands in a line, and what may stand there instead."""

    start: int
    end: int
    pattern: bytes


def _number_slots(raw: bytes) -> list[NumberSlot]:
    slots = []
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
        slots.append(NumberSlot(start, end, re.escape(match[0][:sign]) + pattern if sign else pattern))
    return slots


def _pattern(raw: bytes, slots: Sequence[NumberSlot], used: Sequence[int]) -> bytes:
    """Return a pattern for the whole line that captures the numbers of the used slots."""
    pieces, at = [], 0
    for index, slot in enumerate(slots):
        pieces += [_literal(raw[at : slot.start]), b"(%s)" % slot.pattern if index in used else slot.pattern]
        at = slot.end
    return b"".join([*pieces, _literal(raw[at:])])


def _literal(text: bytes) -> bytes:
    """Return a pattern for the text between numbers: bars fill up, and columns are padded."""
    parts, at = [], 0
    for match in _FILL.finditer(text):
        blank = b" {1,%d}+" % len(match[0]) if len(match[0]) > 1 else b" "
        parts += [re.escape(text[at : match.start()]), blank if match[0].isspace() else _ANY_FILL]
        at = match.end()
    return b"".join([*parts, re.escape(text[at:])])


def _refilled(raw: bytes, slots: Sequence[NumberSlot], rng: random.Random, *, short: bool) -> tuple[bytes, list[float]]:
    """Return a copy of the line with other numbers of the same form, and those numbers."""
    pieces, numbers, at = [], [], 0
    for slot in slots:
        mantissa, letter, exponent = raw[slot.start : slot.end].replace(b"E", b"e").partition(b"e")
        if short and slot.pattern is _COUNT:
            mantissa = mantissa[:1]
        number = re.sub(rb"\d", lambda _: b"%d" % rng.randint(1, 9), mantissa) + letter + exponent
        pieces += [raw[at : slot.start], number]
        numbers.append(float(number))
        at = slot.end
    return b"".join([*pieces, raw[at:]]), numbers


def _sources(
    original: Reading, probe_readings: Sequence[Reading | None], numbers: Sequence[Sequence[float]]
) -> dict[FieldPath, int] | None:
    """Return the slot that each field of a reading comes from; None where that is not clear."""
    expected, answers = _flat(original), [_flat(answer) for answer in probe_readings if answer is not None]
    if len(answers) < len(probe_readings) or any(answer.keys() != expected.keys() for answer in answers):
        return None
    found: dict[FieldPath, int] = {}
    for place, value in expected.items():
        column = [answer[place] for answer in answers]
        if all(str(each) == str(value) for each in column):
            continue
        slots = [
            slot
            for slot in range(len(numbers[0]))
            if all(each == row[slot] for each, row in zip(column, numbers, strict=True))
        ]
        if len(slots) != 1:
            return None
        found[place] = slots[0]
    return found


def _flat(reading: Reading) -> dict[FieldPath, object]:
    """Return all parts of a reading side by side."""
    parts: dict[FieldPath, object] = {}
    for index, value in enumerate(reading):
        if isinstance(value, Mapping):
            parts.update({(index, name): each for name, each in value.items()})
        else:
            parts[index, None] = value
    return parts


def _maker(original: Reading, sources: Mapping[FieldPath, int]) -> Make:
    """Return the function that makes a reading of a line's numbers; it runs once for nearly every line of a log."""
    plain = [(index, slot) for (index, name), slot in sources.items() if name is None and index not in _WHOLE]
    whole = [(index, slot) for (index, name), slot in sources.items() if name is None and index in _WHOLE]
    named = [(index, name, slot) for (index, name), slot in sources.items() if name is not None]
    copied = sorted({index for index, _, _ in named})
    constants: list[Any] = list(original)
    new = partial(tuple.__new__, Reading)

    def make(groups: Sequence[bytes]) -> Reading:
        numbers = [*map(float, groups)]
        row = constants.copy()
        for index in copied:
            row[index] = dict(constants[index])
        for index, slot in plain:
            row[index] = numbers[slot]
        for index, slot in whole:
            row[index] = int(numbers[slot])
        for index, name, slot in named:
            row[index][name] = numbers[slot]
        return new(row)

    return make
