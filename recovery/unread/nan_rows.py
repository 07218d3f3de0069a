"""Finds rows of numbers without a name for the loss that have turned NaN: `7 | nan | nan`, `E007: T= nan (R= nan)`.

A table of scores may hold NaN, too. So this counts only at the end of a log that prints no loss by name, where the rows
of NaN count something up and no such row is finite after them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rung.recovery.doubts.names import Column, column
from rung.recovery.signatures.quoted_text import is_program

# Rows of NaN in a row: an empty class or two is no training.
FEWEST = 3
MAX_READ = 512
MAX_NUMBERS = 32

_DATE = re.compile(r"\d{2,4}[-/]\d\d[-/]\d{2,4}[T ,]{0,2}|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?")
_NUMBER = re.compile(
    r"(?<![\d.])[-+]?(?:\d{1,60}+(?:\.\d{0,40}+)?(?:[eE][-+]?\d{1,5}+)?(?![\d.])|\b(?:nan|inf)\b)", re.IGNORECASE
)
_NAME_BEFORE = re.compile(r"([A-Za-z][\w/@-]{0,40})[\"'\])]{0,2}\s{0,8}[:=|]?\s{0,20}\Z")
_HELD_OUT = re.compile(r"\b(?:val|eval|test|dev|infer)", re.IGNORECASE)
_NOT_FINITE = frozenset({"nan", "inf"})
_NO_TRAINING = frozenset({Column.SCORE, Column.HELD_OUT})
# One number with an unknown name may be a score; where so many are NaN and none is finite, nothing is a score.
SEVERAL = 3
_SETTING = frozenset({Column.STEP, Column.LR, Column.SCALE})


class _Row(NamedTuple):
    shape: str
    counts: tuple[int, ...]
    is_bad: bool


class NanRows:
    """Watches the rows of one log that are alike but for their numbers."""

    def __init__(self) -> None:
        self._shape = ""
        self._counts: tuple[int, ...] = ()
        self._rows = 0

    @property
    def ends_bad(self) -> bool:
        return self._rows >= FEWEST

    def see(self, text: str) -> None:
        """Take one line."""
        if not self._rows and "nan" not in text and "NaN" not in text:
            return
        row = _read(text[:MAX_READ])
        if row is None or (not row.is_bad and row.shape != self._shape):
            return
        if not row.is_bad:
            self.lines_missing()
            return
        goes_on = row.shape == self._shape and _count_up(self._counts, row.counts)
        self._rows = self._rows + 1 if goes_on else 1
        self._shape, self._counts = row.shape, row.counts

    def lines_missing(self) -> None:
        """Begin anew: finite rows may be missing here."""
        self._shape, self._counts, self._rows = "", (), 0


def _count_up(before: tuple[int, ...], now: tuple[int, ...]) -> bool:
    pairs = list(zip(before, now, strict=True)) if len(before) == len(now) else []
    return any(late > early for early, late in pairs) and all(late >= early for early, late in pairs)


def _read(text: str) -> _Row | None:
    """Return a line as a row; None where it counts nothing or measures nothing."""
    if is_program(text) or text.lstrip().startswith("#"):
        return None
    text = _DATE.sub("", text)
    counts: list[int] = []
    measured: list[bool] = []
    is_named = False
    for match in list(_NUMBER.finditer(text))[:MAX_NUMBERS]:
        raw, name = match[0].lower().lstrip("+-"), _name_before(text, match.start())
        if raw.isdecimal():
            counts.append(int(raw))
            continue
        what, is_finite = column(name) if name else Column.UNKNOWN, raw not in _NOT_FINITE
        if what in _NO_TRAINING or (is_finite and what in _SETTING):
            continue
        is_named = is_named or (bool(name) and not measured)
        measured.append(is_finite)
    if not counts or not measured or (not measured[0] and _HELD_OUT.match(text.lstrip())):
        return None
    bad = measured.count(False)
    all_bad = bad == len(measured) >= SEVERAL
    is_bad = not measured[0] and (all_bad if is_named else 2 * bad > len(measured))
    return _Row(" ".join(_NUMBER.sub("#", text).split()), tuple(counts), is_bad)


def _name_before(text: str, start: int) -> str:
    match = _NAME_BEFORE.search(text[max(0, start - 64) : start])
    return match[1] if match and match[1].lower() not in _NOT_FINITE else ""
