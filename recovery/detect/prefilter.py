"""Finds the places in a block of raw bytes where a fault's message could be.

Nine lines in ten have none and are passed over here at the speed of memory. Only lines with a hit are cleaned, decoded
and searched (signatures/search.py).
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import hyperscan

from rung.recovery.logs.lines import CONTROLS, HIDDEN_IN_UTF8
from rung.recovery.signatures import ANCHORS

# The words of Python itself: a frame of a traceback, an exception's last line, a bar that rich draws.
_TRACES = (rb'File "', rb"(?:Error|Exception|Exit) ?:", rb"\xe2\x80\xa2")
# A value that is not finite, in any place where a number may stand. Megatron's "nan iterations" is a name, not a value,
# and stands in every line of its logs; their number is what tells. A row for each width of that number is searched
# faster than one with a repetition.
_VALUES = (
    *(rb"\bnan\b(?:[^ \n]| [^i\r\n]|$)", rb"\binf(?:inity)?\b"),
    *(b"nan iterations:" + b" " * width + b"[1-9]" for width in range(9)),
)

# Records from inside, other than those of single steps.
_RECORDS = rb"rung\| (?:knobs|resumed|saved|metric|replay|hands|end|course|places|not_whole)"

# How many bytes a text begins with that are none of the given ones: one pass of the C library. It takes a third of the
# instructions of `bytes.translate`, and a quarter of those of a class of bytes in hyperscan's build for ARM, which
# looks the bytes up one by one (docs/scale.md).
_SPAN = ctypes.CDLL(None).strcspn
_CONTROLS = CONTROLS.lstrip(b"\0")
_SPAN.argtypes, _SPAN.restype = (ctypes.c_char_p, ctypes.c_char_p), ctypes.c_size_t

_EVERY = hyperscan.HS_FLAG_MULTILINE
_ANY_CASE = hyperscan.HS_FLAG_CASELESS
_ONCE = hyperscan.HS_FLAG_SINGLEMATCH


class Prefilter:
    """Searches blocks for the keywords of all signatures at once; with `values`, for numbers that are not finite, too.

    With `records`, those from inside that are not about one step are found as well.

    The compiled databases are shared, the working memory is not: hyperscan refuses two scans in one at a time, and many
    logs are read at once. So each log has a prefilter of its own.
    """

    def __init__(self, *, values: bool, records: bool = False) -> None:
        databases = _databases(values=values, records=records)
        self._words, self._hidden = ((database, hyperscan.Scratch(database)) for database in databases)

    def find_keywords(self, block: bytes) -> list[int]:
        """Return the offset of the last byte of each keyword in a block, in order."""
        return sorted(_places(*self._words, block))

    def needs_cleaning(self, block: bytes) -> bool:
        """Tell whether a block holds bytes that may hide keywords, so that it must be cleaned first."""
        return _has_control(block) or (not block.isascii() and bool(_places(*self._hidden, block)))


def _has_control(block: bytes) -> bool:
    """Tell whether a block has a control code; the zero, which ends a text in C, is one."""
    return bool(_SPAN(block, _CONTROLS) < len(block))


@lru_cache(maxsize=3)
def _databases(*, values: bool, records: bool) -> tuple[Any, Any]:
    """Compile the keywords and the hidden characters, once each."""
    rows = [(re.escape(word.encode()), _EVERY | _ANY_CASE) for word in _shortest(ANCHORS)]
    rows += [(pattern, _EVERY) for pattern in _TRACES]
    rows += [(pattern, _EVERY | _ANY_CASE) for pattern in (_VALUES if values else ())]
    rows += [(_RECORDS, _EVERY)] if records else []
    # Two databases: together, the two take longer than one after the other.
    return _compile(rows), _compile([(re.escape(sign), _ONCE) for sign in HIDDEN_IN_UTF8])


def _shortest(words: Sequence[str]) -> list[str]:
    """Return the words without those that hold another one, which find no more than that: fewer are found faster.

    No word may be shorter than two letters.
    """
    by_head: dict[str, list[str]] = {}
    for word in words:
        by_head.setdefault(word[:2], []).append(word)

    def holds_another(word: str) -> bool:
        heads = ((at, by_head.get(word[at : at + 2], ())) for at in range(len(word)))
        return any(word.startswith(other, at) and other != word for at, others in heads for other in others)

    return [word for word in words if not holds_another(word)]


def _compile(rows: Sequence[tuple[bytes, int]]) -> Any:
    database = hyperscan.Database()
    patterns, flags = [pattern for pattern, _ in rows], [flag for _, flag in rows]
    database.compile(expressions=patterns, ids=list(range(len(rows))), elements=len(rows), flags=flags)
    return database


def _places(database: Any, scratch: Any, block: bytes) -> list[int]:
    places: list[int] = []

    def note(number: int, start: int, end: int, flags: int, context: object) -> None:
        places.append(end - 1)

    database.scan(block, match_event_handler=note, scratch=scratch)
    return places
