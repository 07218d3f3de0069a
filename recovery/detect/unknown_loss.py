"""Finds a loss that turns NaN in a log whose loss has a name that Rung does not know: `epoch 7 bpd nan |g| nan`.

Only NaN is read so. What a finite number of an unknown name means, and whether it may rise, nobody knows.
"""

from __future__ import annotations

import math
import re

from rung.recovery.doubts.columns import Columns
from rung.recovery.doubts.names import Column, column
from rung.recovery.logs.line_reader import MARK
from rung.recovery.logs.reading import Reading
from rung.recovery.signatures.quoted_text import is_program

# The first lines of NaN may be a number that is not known yet. From this one on each counts as a loss.
COUNTS_FROM = 2
# Finite ones in a row after which nothing is reported any more, until the next NaN.
FINITE = 3
_SETTINGS_BESIDE = frozenset({Column.STEP, Column.LR, Column.SCALE, Column.NORM})
_HELD_OUT = re.compile(r"\b(?:val|eval|test|dev|infer)", re.IGNORECASE)


class UnknownLoss:
    """Watches the first number of each line, until the log prints a loss by name."""

    def __init__(self) -> None:
        # Whether the log prints a loss by name, so that nothing is added any more.
        self.is_known = False
        self._name = ""
        self._bad = self._good = 0

    def add_to(self, reading: Reading | None, text: str) -> Reading | None:
        """Return the reading of a line, with the NaN of an unknown loss as its loss."""
        if self.is_known:
            return reading
        if reading is not None and (reading.loss is not None or reading.is_record):
            self.is_known = True
            return reading
        if not self._name and "nan" not in text and "NaN" not in text and "NAN" not in text:
            return reading
        value = self._value(text)
        if value is None:
            return reading
        return (reading or Reading())._replace(loss=value, loss_name=self._name)

    def lines_missing(self) -> None:
        """Count anew what must come in a row: lines are missing here."""
        self._name, self._bad, self._good = "", 0, 0

    def _value(self, text: str) -> float | None:
        """Return the value of the unknown loss where it counts."""
        found = _first_number(text)
        if found is None or (self._name and found[0] != self._name):
            return None
        name, value = found
        if math.isnan(value):
            self._name, self._good = name, 0
            self._bad += 1
            return value if self._bad >= COUNTS_FROM else None
        was_reported = self._bad >= COUNTS_FROM
        self._good += 1
        if not was_reported or self._good >= FINITE:
            self._name, self._bad = "", 0
        return value if was_reported and math.isfinite(value) else None


def _first_number(text: str) -> tuple[str, float] | None:
    """Return the first number of a line that is no step and no setting, where it may be a loss."""
    if MARK in text or _HELD_OUT.search(text) or is_program(text):
        return None
    named = [(name, value, column(name)) for name, value in Columns().read(text)]
    first = next(((name, value, what) for name, value, what in named if what not in _SETTINGS_BESIDE), None)
    if first is None:
        return None
    name, value, what = first
    has_norm = any(other is Column.NORM for _, _, other in named)
    return (name, value) if what is Column.LOSS or (what is Column.UNKNOWN and has_norm) else None
