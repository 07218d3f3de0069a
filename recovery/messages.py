"""Owns the search for a fault's message in one line, and the judgement whether the line means it or only shows it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recovery.signatures import SIGNATURES, Signature

# Words before a message that make it advice about a fault, not a fault.
_ADVICE = re.compile(
    r"\b(?:avoid(?:s|ing)?|prevents?|in case of|if you (?:get|see|hit|run into|encounter)|instead of|recover from"
    r"|handles?|(?:may|might|can|could) (?:cause|lead to|result in|run))\b.{0,40}$",
    re.IGNORECASE,
)
# A message inside a call of the program's own text: raise ValueError("..."), print("..."), warnings.warn("...").
_CALL = re.compile(r"(?:\braise\s+[\w.]+|\bprint|\bwarn\w*|\blog\w*\.\w+)\s*\(\s*[frbFRB]{0,2}([\"']).*?(?:\1|$)")
_COMMENT = re.compile(r"\s*(?:# |//|/\*|\"\"\")")
# A configuration that was printed: a rule's own pattern, argparse's dump, a row of a job file.
_CONFIG = re.compile(r"\bpatterns?[\"']?\s*[:=]|\bNamespace\(|\bfault[\"']?\s*[:=]\s*[\"']?[a-z0-9_]+[\"']?\s*[,}]")
_RANK = r"(?:\[?rank ?\d+\]?[:\]] ?|\d{1,4}: ?|\[\d+\]:? ?)?"
_RAISED = re.compile(rf"{_RANK}(?:[A-Za-z_]\w*\.)*_?(?:[A-Z]\w*)?(?:Error|Exception|Exit)\b ?:")

# Says only that an exception came from elsewhere: torchrun's summary follows, or a data worker's own traceback.
_PASSED_ON = re.compile(r": ?$|: Caught \w+ in |CalledProcessError: ")


def _by_anchor() -> dict[str, list[Signature]]:
    table: dict[str, list[Signature]] = {}
    for row in SIGNATURES:
        for anchor in row.anchors:
            table.setdefault(anchor, []).append(row)
    return table


_BY_ANCHOR = _by_anchor()
_PLACE = {row.name: place for place, row in enumerate(SIGNATURES)}


@dataclass(frozen=True)
class Match:
    signature: Signature
    start: int
    # The line is the last line of a traceback: nobody caught it.
    raised: bool


def search(text: str, lower: str) -> Match | None:
    """Return the fault a line tells of, the first in the table's order, or None; `lower` is the text in lower case."""
    rows: list[Signature] = []
    for anchor, known in _BY_ANCHOR.items():
        if anchor in lower:
            rows += known
    for row in sorted(rows, key=lambda row: _PLACE[row.name]):
        start = _find(row, text)
        if start is not None:
            return Match(row, start, is_raised(text))
    return None


def _find(row: Signature, text: str) -> int | None:
    match = row.pattern.search(text)
    if not match or is_shown_text(text):
        return None
    if "(" in text:
        # Only now is it worth the time to blank out the program's own text.
        match = row.pattern.search(_CALL.sub(lambda call: " " * len(call[0]), text))
    # A backslash belongs to a pattern that was printed, not to what it stands for.
    if not match or "\\" in match[0] or _ADVICE.search(text, 0, match.start()):
        return None
    return match.start()


def is_shown_text(text: str) -> bool:
    """Tell whether a line only shows text: a comment, a printed configuration, an echo of ours."""
    return bool(_COMMENT.match(text) or _CONFIG.search(text))


def is_raised(text: str) -> bool:
    """Tell whether a line is the last one of a traceback, `SomeError: message`."""
    return bool(_RAISED.match(text))


def is_first_hand(text: str) -> bool:
    """Tell whether a line is the last one of a traceback and tells of the exception itself, not of one elsewhere."""
    # Asked of every line, and most have no colon.
    return ": " in text and is_raised(text) and not _PASSED_ON.search(text)
