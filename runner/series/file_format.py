"""Spells the rows of a series as lines of a file, and reads them back.

A line is a checksum and a list in JSON. A reader takes lines up to the first that is torn, damaged or out of place.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from rung.recovery.series.point import QUANTITIES, Extremes, Row, row_of
from rung.recovery.series.thinning import MOST_LEVELS, ROWS_PER_LEVEL, count_of_row

# No row is longer, and no file has more rows than this.
MAX_LINE = 1000
MAX_BYTES = MAX_LINE * ROWS_PER_LEVEL * MOST_LEVELS
HEAD = b"rung series 1\n"


class Parsed(NamedTuple):
    """The rows at the beginning of a file, how many bytes they take, and whether that is all but a torn line."""

    rows: list[Row]
    size: int
    whole: bool


def line_of(index: int, row: Row) -> bytes:
    """Return the row at this place of a series as a line."""
    return lines_of(index, (row,), row.at)


def lines_of(index: int, rows: Sequence[Row], at: float | None) -> bytes:
    """Return the rows from this place of a series on as lines; `at`: when all of them were read."""
    time = "null" if at is None else at
    lines = []
    for place, row in enumerate(rows, index):
        pairs = ["null" if each is None else _pair(*each) for each in row[2:7]]
        # Written by hand: the encoder of Python takes several times as long for so little.
        text = f"[{place},{row[0]},{row[1]},{time},{','.join(pairs)}]".encode()
        lines.append(b"%08x %s\n" % (zlib.crc32(text), text))
    return b"".join(lines)


def _pair(first_step: int, first: float, last_step: int, last: float) -> str:
    low = repr(first) if -math.inf < first < math.inf else f'"{first!r}"'
    if last is first:
        return f"[{first_step},{low},{last_step},{low}]"
    high = repr(last) if -math.inf < last < math.inf else f'"{last!r}"'
    return f"[{first_step},{low},{last_step},{high}]"


def parse(data: bytes) -> Parsed:
    """Return the rows of a file. Only the last may be short: the attempt had ended then."""
    if not data.startswith(HEAD):
        # Nothing but the beginning of the first line: the writer was killed there.
        return Parsed([], 0, whole=HEAD.startswith(data))
    found = parse_more(data[len(HEAD) :])
    return found._replace(size=len(HEAD) + found.size)


def parse_more(data: bytes, count: int = 0, last: Row | None = None) -> Parsed:
    """Return the rows in the bytes that follow so many rows, the last of which is `last`."""
    rows: list[Row] = []
    size = 0
    for line in data.splitlines(keepends=True):
        row = _row(count, line) if line.endswith(b"\n") else None
        is_whole = last is None or last.readings == count_of_row(count - 1)
        if row is None or not is_whole or row.readings > count_of_row(count):
            return Parsed(rows, size, whole=size + len(line) == len(data) and not line.endswith(b"\n"))
        rows.append(row)
        last, count, size = row, count + 1, size + len(line)
    return Parsed(rows, size, whole=True)


def _row(index: int, line: bytes) -> Row | None:
    """Return the row of a line; None if anything about it is wrong, or it is not the one at this place."""
    check, _, text = line[:-1].partition(b" ")
    if len(line) > MAX_LINE or check != b"%08x" % zlib.crc32(text):
        return None
    try:
        place, readings, last_step, at, *pairs = json.loads(text)
        counts = all(map(_is_count, (place, readings, last_step)))
        if len(pairs) != len(QUANTITIES) or not counts or place != index or readings < 1:
            return None
        found = [None if each is None else _extremes(each) for each in pairs]
        return row_of(readings, last_step, found, None if at is None else _number(at))
    except (ValueError, TypeError, RecursionError):
        return None


def _extremes(found: Sequence[Any]) -> Extremes:
    first_step, first, last_step, last = islice(found, 5)
    if not _is_count(first_step) or not _is_count(last_step):
        raise ValueError(found)
    return Extremes(first_step, _number(first), last_step, _number(last))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError(value)
    return float(value)
