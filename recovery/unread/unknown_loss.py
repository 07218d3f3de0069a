"""Finds a loss that turns NaN in a log whose loss has a name that Rung does not know: `epoch 7 bpd nan |g| nan`.

Only NaN is read so. What a finite number of an unknown name means, and whether it may rise, nobody knows; one that ends
ten thousand times higher explains the end (unknown_rise.py).
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from rung.recovery.doubts.columns import Columns
from rung.recovery.doubts.names import Column, column, names_a_loss
from rung.recovery.logs.line_reader import MARK
from rung.recovery.logs.reading import Reading
from rung.recovery.signatures.quoted_text import is_program
from rung.recovery.unread.unknown_rise import UnknownRise

# The first lines of NaN may be a number that is not known yet. From this one on each counts as a loss.
COUNTS_FROM = 2
# Finite ones in a row after which nothing is reported any more, until the next NaN.
FINITE = 3
_SETTINGS_BESIDE = frozenset({Column.STEP, Column.LR, Column.SCALE, Column.NORM})
_HELD_OUT = re.compile(r"\b(?:val|eval|test|dev|infer)", re.IGNORECASE)


class _First(NamedTuple):
    name: str
    value: float
    what: Column
    # Gradients of NaN beside it, or a name that says what it is.
    is_sure: bool


class UnknownLoss:
    """Watches the first number of each line, until the log prints a loss by name."""

    def __init__(self) -> None:
        self.is_known = False
        self._rise = UnknownRise()
        self._name = ""
        self._bad = self._good = 0

    def add_to(self, reading: Reading | None, text: str) -> Reading | None:
        """Return the reading of a line, with the NaN of an unknown loss as its loss."""
        if self.is_known:
            return reading
        if reading is not None and (reading.loss is not None or reading.is_record):
            self.is_known = True
            return reading
        found = _first_number(text, self._name)
        if found is not None:
            self._rise.see(found.name, found.value, found.what)
        if not self._name and "nan" not in text and "NaN" not in text and "NAN" not in text:
            return reading
        value = self._value(found)
        if value is None:
            return reading
        return (reading or Reading())._replace(loss=value, loss_name=self._name)

    def lines_missing(self) -> None:
        """Count anew what must come in a row: lines are missing here."""
        self._name, self._bad, self._good = "", 0, 0

    @property
    def ends_high(self) -> bool:
        """Return whether the log so far ends with an unknown loss far above its first value."""
        return not self.is_known and self._rise.ends_high

    def _value(self, found: _First | None) -> float | None:
        """Return the value of the unknown loss where it counts."""
        if found is None or (self._name and found.name != self._name):
            return None
        value = found.value
        if math.isnan(value):
            self._name, self._good = found.name, 0
            # Where it is sure, one is enough.
            self._bad += COUNTS_FROM if found.is_sure else 1
            return value if self._bad >= COUNTS_FROM else None
        was_reported = self._bad >= COUNTS_FROM
        self._good += 1
        if not was_reported or self._good >= FINITE:
            self._name, self._bad = "", 0
        return value if was_reported and math.isfinite(value) else None


def _first_number(text: str, known: str) -> _First | None:
    """Return the first number of a line that is no step and no setting, where it may be a loss.

    `known`: the name under which there was NaN before.
    """
    if MARK in text or _HELD_OUT.search(text) or is_program(text):
        return None
    named = [(name, value, column(name)) for name, value in Columns().read(text)]
    first = next((each for each in named if not _is_beside(each[1], each[2])), None)
    # By its name it is one wherever it stands: glued to another word (RPNLogLoss), or as its exponent.
    first = next((each for each in named if math.isnan(each[1]) and _is_surely_loss(each[0], each[2])), first)
    first = next((each for each in named if each[0] == known), first)
    if first is None:
        return None
    name, value, what = first
    norms = [other for _, other, of in named if of is Column.NORM]
    is_loss = what is Column.LOSS or (what is Column.UNKNOWN and bool(norms))
    # What may rise by design is not NaN by design.
    is_loss = is_loss or (math.isnan(value) and (what in (Column.RIVAL, Column.PERPLEXITY) or name == "l"))
    is_loss = is_loss or name == known
    return _First(name, value, what, any(map(math.isnan, norms)) or "loss" in name) if is_loss else None


def _is_surely_loss(name: str, what: Column) -> bool:
    return what is Column.PERPLEXITY or (what in (Column.LOSS, Column.RIVAL) and names_a_loss(name))


def _is_beside(value: float, what: Column) -> bool:
    """Return whether a number is a setting or a count, whatever it counts: `frames=960 err=0.5`."""
    return what in _SETTINGS_BESIDE or (what is Column.UNKNOWN and value.is_integer())
