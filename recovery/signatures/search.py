"""Searches one line for the message of a fault, and decides whether the line reports or only quotes it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rung.jobs.model.fault import FaultKind
from rung.recovery.signatures import GUARDS, SIGNATURES, Role, Signature, advice
from rung.recovery.signatures.numeric import ASSERTION
from rung.recovery.signatures.quoted_text import PREFIX, is_program, quoting, without_calls

_RAISED = re.compile(
    rf"{PREFIX}(?:[A-Za-z_]\w{{0,60}}\.){{0,12}}_?(?:[A-Z]\w{{0,80}})?(?:Error|Exception|Exit)(?:\(\w{{1,60}}\))? ?:"
)
_TEARDOWN = tuple(row for row in GUARDS if row.role is Role.TEARDOWN)


def _by_anchor() -> dict[str, list[int]]:
    table: dict[str, list[int]] = {}
    for index, row in enumerate(SIGNATURES):
        for anchor in row.anchors:
            table.setdefault(anchor, []).append(index)
    return table


_BY_ANCHOR = _by_anchor()
# Most lines have no anchor. All pieces of a short line are looked up at once among the beginnings of anchors.
STEM = 6
SHORT_LINE = 400
_BY_STEM: dict[str, tuple[str, ...]] = {}
for _anchor in filter(lambda anchor: len(anchor) >= STEM, _BY_ANCHOR):
    _BY_STEM[_anchor[:STEM]] = (*_BY_STEM.get(_anchor[:STEM], ()), _anchor)
_STEMS = frozenset(_BY_STEM)
# In other scripts than Latin, six bytes may be two characters.
_WITHOUT_STEM = tuple(anchor for anchor in _BY_ANCHOR if len(anchor) < STEM)


@dataclass(frozen=True)
class Match:
    signature: Signature
    start: int
    # The line is the last line of a traceback: the exception was not caught.
    raised: bool
    # The line quotes the message in a comment or a print call: it counts only as the cause of an end.
    quoted: bool = False


def search(text: str, lower: str) -> Match | None:
    """Return the first match in the order of the rows, or None; `lower` is the text in lower case."""
    indices = {index for anchor in anchors_in(lower) for index in _BY_ANCHOR[anchor]}
    if not indices:
        return None
    for row in (SIGNATURES[index] for index in sorted(indices)):
        if row.role is Role.CUT or not (match := row.pattern.search(text)):
            continue
        if found := _judge(row, match, text):
            return found
    return None


def anchors_in(lower: str) -> list[str]:
    """Return the anchors in a text in lower case."""
    if len(lower) > SHORT_LINE:
        return [anchor for anchor in _BY_ANCHOR if anchor in lower]
    stems = _STEMS.intersection([lower[at : at + STEM] for at in range(len(lower) - STEM + 1)])
    found = [anchor for stem in stems for anchor in _BY_STEM[stem] if anchor in lower]
    return found if lower.isascii() else found + [anchor for anchor in _WITHOUT_STEM if anchor in lower]


def _judge(row: Signature, match: re.Match[str], text: str) -> Match | None:
    """Return the match when the line reports the fault; None when it only mentions it."""
    if is_program(text) or is_teardown(text):
        return None
    plain = without_calls(text)
    if plain is not text:
        found = row.pattern.search(plain)
        if not found:
            return None
        match = found
    # With a backslash it is a printed pattern, not a message.
    if "\\" in match[0] or is_advice(text, match.start()):
        return None
    quoted = quoting(text, match.start())
    return None if quoted is False else Match(row, match.start(), is_raised(text), bool(quoted))


def says_divergence(text: str, lower: str) -> bool:
    """Return whether the message of a line is that the run diverged."""
    match = search(text, lower)
    return match is not None and match.signature.fault is FaultKind.DIVERGENCE


def search_assertion(text: str, source: str) -> Match | None:
    """Return a match for an assertion without a message that failed; `source` is its line in the program."""
    if "AssertionError" not in text or not ASSERTION.pattern.search(source):
        return None
    return Match(ASSERTION, 0, raised=True)


def search_frame(text: str) -> Signature | None:
    """Return the row for a frame in which a traceback may have been cut off."""
    for row in SIGNATURES:
        if row.role is Role.CUT and row.pattern.search(text):
            return row
    return None


def is_teardown(text: str) -> bool:
    """Return whether a line is from processes that are being ended."""
    return any(row.pattern.search(text) for row in _TEARDOWN)


def is_advice(text: str, start: int) -> bool:
    """Return whether the line only gives advice about the message at `start`."""
    before = text[max(0, start - 160) : start]
    return any(row.pattern.search(before) for row in advice.BEFORE) or any(
        row.pattern.search(text) for row in advice.WHOLE
    )


def is_raised(text: str) -> bool:
    """Return whether a line is the last one of a traceback, `SomeError: message`."""
    return bool(_RAISED.match(text))


def is_first_hand(text: str) -> bool:
    """Return whether a line is the last one of a traceback, and not about an exception in another process."""
    # A cheap test first: most lines have no colon.
    return ": " in text and is_raised(text) and not is_teardown(text)
