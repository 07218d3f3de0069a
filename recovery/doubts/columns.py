"""Finds every number with a name on a line, also under names that no framework uses.

Only for `rung explain`: what is found here is shown to a person and never acted on.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rung.recovery.logs.key_values import without_commas

# Only this many characters of a line are read, and so many numbers.
MAX_READ = 4096
MAX_COLUMNS = 64
# How the columns of rows without a header are called, with their number.
UNNAMED = "column "


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NUMBER = r"[-+]?(?:\d{1,60}+(?:\.\d{0,40}+)?(?:[eE][-+]?\d{1,5}+)?|\.\d{1,40}+|nan|inf(?:inity)?)"
_NAMED = re.compile(
    r"(?<![\w.])((?:(?:train|training|val|validation|eval|test) )?"
    r"(?:[A-Za-z_][\w./@-]{0,40}+ )?(?:-?[A-Za-z_][\w./@-]{0,40}+|\|[a-zA-Z]{1,8}\|)"
    r"(?: per [a-z]{1,12})?)[\"'\])]{0,2}"
    rf"(?: {{0,20}}[:=] {{0,20}}| {{0,20}}\| {{0,20}}| {{1,20}})(?:tensor\(|\()?[\"']?({_NUMBER})"
    r"(?=$|[\s,;|\"'\]\)}}/<]|\.(?:\s|$)|%)(?! ?(?:%|ms\b|s\b|/ ?\d|of \d))",
    re.IGNORECASE,
)
_DATE = re.compile(r"\d{2,4}[-/]\d\d[-/]\d{2,4}[T ,]{1,2}\d\d:\d\d:\d\d(?:[.,]\d+)?|\b\d\d:\d\d:\d\d(?:[.,]\d+)?")
# The prefix of glog and absl: I1118 20:13:10.789075 139652933761920 train.py:13]
_GLOG = re.compile(r"[IWEF]\d{4} [\d:.]{8,18} +\d+ +[\w./-]{1,80}:\d+\] ?")
# <epoch id="1"><rec>24.2</rec></epoch>
_TAGGED = re.compile(rf"<([A-Za-z_][\w.-]{{0,40}})>\s{{0,4}}({_NUMBER})\s{{0,4}}</\1>", re.IGNORECASE)
# A row without a header above it: numbers only, of which the first counts.
_BARE_ROW = re.compile(
    rf"[\s|\[(]{{0,8}}\d{{1,9}}(?:[\s,;|\u2502:]{{1,20}}{_NUMBER}){{2,32}}[\s|\])]{{0,8}}", re.IGNORECASE
)
_CELL_NAME = re.compile(r"[A-Za-z_][\w ./@()%#-]{0,40}")
_CELL = re.compile(_NUMBER, re.IGNORECASE)
_GAPS = re.compile(r"\s{2,}|\t| (?=[\d.+-])")
_NAMES_OF_VALUES = _words("value values val number current latest")
# Words before a name that are no part of it.
_COMMON = _words("and at batch debug done e end ep epoch finished info is it iter of rank step the train warning ")


# A sentence about a number: "a loss of nan means", "loss contains nan". A value that is not finite is no name either.
_SENTENCE = _words(
    "and are at be became becomes by contain contains for from had has have if in is no not of on or than to was with "
    "nan inf NaN Inf "
)


class Column(NamedTuple):
    name: str
    value: float


class Columns:
    """Reads the lines of one log; a header names the columns of the rows below it."""

    def __init__(self) -> None:
        self._header: tuple[str | None, tuple[str, ...]] | None = None

    def read(self, text: str) -> list[Column]:
        text = without_commas(_GLOG.sub("", text[:MAX_READ], count=1))
        if self._header is not None and (row := _row(text, *self._header)):
            return row
        if text.lstrip().startswith("#") or self._is_of_a_thing(text):
            return []
        if _BARE_ROW.fullmatch(text):
            return [Column(f"{UNNAMED}{at}", float(raw)) for at, raw in enumerate(_CELL.findall(text), 1) if at > 1]
        if "</" in text and (tagged := _TAGGED.findall(text)):
            return [Column(name.lower(), float(raw)) for name, raw in tagged][:MAX_COLUMNS]
        pairs = _NAMED.findall(_DATE.sub(" ", text))
        found = [Column(_plain_name(name), float(raw)) for name, raw in pairs if name.split()[-1] not in _SENTENCE]
        if not found and (header := _header(text)):
            self._header = header
        return found[:MAX_COLUMNS]

    def _is_of_a_thing(self, text: str) -> bool:
        """Return whether a line is a row of scores about what its first cell names: `| pedestrian | nan |`."""
        if self._header is None or self._header[0] in (None, ",") or self._header[1][-1].lower() in _NAMES_OF_VALUES:
            return False
        cells = _cells(text, self._header[0])
        return len(cells) == len(self._header[1]) and _CELL.fullmatch(cells[0]) is None


def _plain_name(name: str) -> str:
    """Return a name without a word in front of it that only says where the number was seen."""
    first, _, rest = name.rpartition(" ")
    # E3, step12: the place of the number, and no name.
    whole = rest if first.lower() in _COMMON or first[-1:].isdigit() else name
    return whole.strip("\"'|").lower()


def _header(text: str) -> tuple[str | None, tuple[str, ...]] | None:
    for separator in (",", ";", "\t", "|", "\u2502", "\u2503", None):
        if separator is not None and separator not in text:
            continue
        cells = _cells(text, separator)
        if 2 <= len(cells) <= MAX_COLUMNS and all(_CELL_NAME.fullmatch(cell) for cell in cells):
            # A sentence has single blanks between its words, and columns have more.
            if separator is None and len(re.split(r"\s{2,}", text.strip())) != len(cells):
                return None
            return "\u2502" if separator == "\u2503" else separator, tuple(cell.lower() for cell in cells)
    return None


def _row(text: str, separator: str | None, names: tuple[str, ...]) -> list[Column]:
    cells = _cells(text, separator)
    if len(cells) != len(names):
        return []
    # pandas writes NaN where a value is missing.
    pairs = [pair for pair in zip(names, cells, strict=True) if pair[1] != "NaN" and _CELL.fullmatch(pair[1])]
    found = [Column(name, float(cell)) for name, cell in pairs]
    return found if 2 * len(found) > len(cells) else []


def _cells(text: str, separator: str | None) -> list[str]:
    if separator is None:
        return text.split()
    return [cell.strip() for cell in text.strip().strip("|").split(separator)]
