"""Reads tables in a log: a header names the columns of the rows below it.

Columns can be separated by commas or semicolons (CSV), tabs, blanks (skorch, Ultralytics, pandas) or bars. One header
is remembered.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from rung.recovery.logs.free_text import read_pairs
from rung.recovery.logs.metric_names import Role, role
from rung.recovery.logs.reading import Reading

MAX_COLUMNS = 64
MAX_ROW = 2048
# A table ends after this many lines that are not its rows.
FORGET_AFTER = 500
_NAME = re.compile(r"[A-Za-z_%#][\w ./@()%#-]{0,60}")
_NUMBER = re.compile(
    r"[-+]?(?:\d{1,40}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,5})?|\.\d{1,40}|nan|inf(?:inity)?)", re.IGNORECASE
)
_GAP = re.compile(r" {2,}")
_TWO_WORDS = re.compile(r"\b(train|training|val|valid|validation|test|eval) (loss)\b", re.IGNORECASE)
# A word that begins with a digit, and so is no name; most lines with a loss have one.
_HAS_NUMBER = re.compile(r"(?<!\S)[0-9]")
_HEADER_WORDS = ("loss", "Loss", "epoch", "Epoch", "step", "iter")
_BY_FUNCTION = frozenset({Role.FUNCTION, Role.UNNAMED_TERM})
# Columns that may hold anything.
_UNKNOWN = frozenset({Role.OTHER, Role.FUNCTION})
# Ultralytics: the epoch of all epochs.
_EPOCH_OF_EPOCHS = re.compile(r"(\d{1,9})/(\d{1,9})")
_RULE_CHARACTERS = frozenset("-=+|:\u2500\u2501\u253c\u2502 ")
# In the order in which they are tried; None: blanks. rich draws the bars of a header thicker than those of its rows.
_THICK, _THIN = "\u2503", "\u2502"
_SEPARATORS = (",", ";", "\t", "|", _THIN, _THICK, None)
# rich cuts a number that is too long for its column.
_CUT = "\u2026"


@dataclass(frozen=True)
class Header:
    separator: str | None
    names: tuple[str, ...]


class Tables:
    """Remembers the last header and reads the rows below it."""

    def __init__(self) -> None:
        self._header: Header | None = None
        self._lines_since_row = 0

    def read(self, text: str) -> Reading | None:
        """Return the numbers of a table row; None for every other line, also for a header."""
        if self._header is not None:
            reading = _read_row(text, self._header) if len(text) <= MAX_ROW else None
            if reading is not None:
                self._lines_since_row = 0
                return reading
            self._lines_since_row += 1
            if self._lines_since_row > FORGET_AFTER:
                self._header = None
        if not is_no_header(text):
            self._header = _read_header(text) or self._header
        return None

    @property
    def is_open(self) -> bool:
        """Return whether the next line may be a row."""
        return self._header is not None


def is_no_header(text: str) -> bool:
    """Tell at a glance that a line names no columns, whatever its digits are; False: it may do so."""
    # Most lines with a loss are `loss=0.5` or `loss: 0.5`, and no column has such a name.
    if "=" in text or ":" in text or len(text) > MAX_ROW:
        return True
    # Most other lines are names and numbers between blanks: no header either.
    if not _has_separator(text) and _HAS_NUMBER.search(text):
        return True
    return not any(word in text for word in _HEADER_WORDS)


def _read_header(text: str) -> Header | None:
    for separator in _SEPARATORS:
        if _HAS_NUMBER.search(text) if separator is None else separator not in text:
            continue
        names = _cells(text, separator)
        if 2 <= len(names) <= MAX_COLUMNS and all(_NAME.fullmatch(name) for name in names):
            if not _has_run_columns(names, text, separator):
                return None
            return Header(_THIN if separator == _THICK else separator, _with_loss(names))
    return None


def _has_separator(text: str) -> bool:
    # Spelled out, because it is asked of most lines: a loop takes ten times as long.
    return "," in text or ";" in text or "|" in text or "\t" in text or _THIN in text or _THICK in text


def _with_loss(names: list[str]) -> tuple[str, ...]:
    """Return the names of the columns; where none is a loss, the one with the name of a function is."""
    if any(role(name) in (Role.LOSS, Role.NAMED_TERM) for name in names):
        return tuple(names)
    first = next(name for name in names if role(name) in _BY_FUNCTION)
    return tuple(f"{name}_loss" if name == first else name for name in names)


def _has_run_columns(names: list[str], text: str, separator: str | None) -> bool:
    roles = {role(name) for name in names}
    if not roles & {Role.STEP, Role.EPOCH}:
        return False
    if not roles & {Role.LOSS, Role.NAMED_TERM}:
        # A loss by the name of its function can be a score; beside the lr or the gradient norm it is none.
        return separator is not None and bool(roles & _BY_FUNCTION) and bool(roles & {Role.LR, Role.GRAD_NORM})
    # A sentence has single blanks between its words, and words that are not names of columns. It does not begin with
    # the names of fastai's table, which is copied with single blanks.
    if separator is not None or not roles & _UNKNOWN or len(_GAP.split(text.strip(" "))) == len(names):
        return True
    return [role(name) for name in names[:3]] == [Role.EPOCH, Role.LOSS, Role.HELD_OUT]


def _cells(text: str, separator: str | None) -> list[str]:
    if separator is None:
        # The names of columns may have a blank in them: train loss.
        return _TWO_WORDS.sub(r"\1_\2", text).split(maxsplit=MAX_COLUMNS)
    plain = text.strip(" ")
    if separator != ",":
        plain = plain.strip(separator)
    return [cell.strip(" ") for cell in plain.split(separator, MAX_COLUMNS)]


def _read_row(text: str, header: Header) -> Reading | None:
    if not text or _RULE_CHARACTERS.issuperset(text):
        return None
    cells, names = _cells(text, header.separator), header.names
    if header.separator is None:
        cells = _trim_cells(cells, names)
    if len(cells) != len(names):
        return None
    pairs = []
    for name, cell in zip(names, cells, strict=True):
        value = _value(cell, role(name))
        if value is None:
            return None
        if value:
            pairs.append((name, value))
    # A row has a step or an epoch, or a position such as `2/50`.
    if not any(role(name) in (Role.STEP, Role.EPOCH) for name, _ in pairs) and "/" not in cells[0]:
        return None
    reading = read_pairs(pairs, text)
    return reading if reading is not None and (reading.loss is not None or reading.held_out_loss is not None) else None


def _trim_cells(cells: list[str], names: tuple[str, ...]) -> list[str]:
    """Remove what is not a column: the index that pandas prints first, the bar that Ultralytics prints last."""
    if len(cells) == len(names) + 1 and cells[0].isdigit() and all(_NUMBER.fullmatch(cell) for cell in cells):
        return cells[1:]
    if len(cells) > len(names) and cells[len(names) - 1].endswith(":"):
        return [*cells[: len(names) - 1], cells[len(names) - 1][:-1]]
    return cells


def _value(cell: str, what: Role) -> str | None:
    """Return a cell's number as text, "" for a cell without a number, None when the line is not a row."""
    if what is Role.EPOCH and "/" in cell:
        match = _EPOCH_OF_EPOCHS.fullmatch(cell)
        return match[1] if match else ""
    is_number = _NUMBER.fullmatch(cell) is not None
    # pandas writes NaN where a value is missing; a loss that is not a number is printed as nan.
    if cell in ("", "NaN", "None", "-") or (cell.endswith(_CUT) and cell[0].isdigit()):
        return ""
    if what in _UNKNOWN:
        return cell if is_number and math.isfinite(float(cell)) else ""
    return cell if is_number else None
