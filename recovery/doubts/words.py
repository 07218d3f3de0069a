"""Finds words of a script's own guard about bad numbers, which are too vague or too few to act on."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rung.jobs.model.fault import FaultKind
from rung.recovery.doubts.doubt import Doubt
from rung.recovery.logs.lines import Line
from rung.recovery.signatures.quoted_text import is_program, quoting, without_calls
from rung.recovery.signatures.search import is_advice, is_raised

_BAD = r"(?:nans?|infs?|non-?finite|not (?:a )?finite|infinite|not a number)"
_DONE = (
    r"(?:skip\w*|stop\w*|abort\w*|terminat\w*|ending|exit\w*|halt\w*|revert\w*|restor\w*|roll\w* back|reload\w*"
    r"|ignor\w*|drop\w*|discard\w*|lower\w*|reduc\w*|halv\w*|detected|found|encountered|appeared|giving up|bail\w*"
    r"|zeroed|contains?|is|are|became|went|hit|produced|!)"
)
_NUMBERS = re.compile(
    rf"(?<![\w-]){_BAD}\b.{{0,60}}\b{_DONE}(?!\w)|\b{_DONE}\b.{{0,60}}(?<![\w-]){_BAD}\b(?!:)|\b{_BAD} ?!",
    re.IGNORECASE,
)
_DIVERGED = re.compile(
    r"\b(?:diverged|diverging|divergence detected|exploded|exploding|blew up|blown up|unstable training"
    r"|loss spike|loss jumped)\b",
    re.IGNORECASE,
)
_OVERFLOW = re.compile(r"\bOverflowError: (?:math range error|\(34|cannot convert float infinity)", re.IGNORECASE)
_SKIPPED = re.compile(
    r"\b(?:overflow|skipp\w+ (?:the )?(?:step|update|optimizer)|scale (?:down|reduced|lowered|halved))", re.IGNORECASE
)
# Words that say that it did not happen, or what would be done.
_NOT_SEEN = re.compile(
    r"\b(?:no|not|never|without|zero"
    r"|(?<![.\d])0(?! ?:)(?=[^\d]{0,3}(?:nan|inf|$))|none|if|when"
    r"|whenever|would|will|unless|check(?:s|ing)?(?: for)?|guard\w*"
    r"|avoid\w*|prevent\w*|against|policy|to stop|disabled?|enabled?|threshold)\b(?! finite| a finite| a number)"
    r"|[_-]nan|nan[_-]|--\w|\{|=(?:true|false|none)"
    # A setting, and the cleaning of data.
    r"|\bnans? (?:handling|policy|mode|strategy|option|behaviou?r|treatment|fill\w*)\b"
    r"|\b(?:dropp?|remov|filter|fill|imput|replac|mask|exclud|interpolat|discard|skipp?)(?:s|ed|ing|ped|ping)?\b.{0,40}"
    r"\b(?:rows?|features?|columns?|samples?|cells?|entries|labels?|pixels?|records?|series|readings?|frames?|documents?"
    r"|examples?)\b"
    r"|\bnans? (?:rows?|features?|columns?|samples?|cells?|entries|labels?|records?|values? in (?:column|row))\b"
    r"|\b(?:shown as|treated as|cannot be computed|histogram|branch|origin|best)\b",
    re.IGNORECASE,
)
# A number with a name is judged by recovery/doubts/curves.py.
_IS_VALUE = re.compile(
    r"(?<!warning)(?<!error)(?<!critical)(?<!fatal)(?<!warn)[:=]\s*\(?[\"']?-?(?:nan|inf)\b", re.IGNORECASE
)
_WORDS_ONLY = "only words say so, or too few of them"
# Where so many lines tell of skipped steps, the scale goes up and down.
MANY_SKIPS = 5


def _go_on(skips: Sequence[Line], lines: Sequence[Line]) -> bool:
    """Return whether steps were made between the skipped ones, up to the end: a new scaler only skips at first."""
    between = [line for line in lines if skips[0].number < line.number < skips[-1].number]
    return len(between) >= 2 * len(skips) and skips[-1].number > lines[2 * len(lines) // 3].number


def find_words(lines: Sequence[Line]) -> list[Doubt]:
    """Return what the words of a log may show, the first of each kind."""
    found: dict[FaultKind, Doubt] = {}
    skips: list[Line] = []
    for line in lines:
        text = line.text
        kind = _kind_of(text)
        if kind is not None and not is_program(text):
            seen = "a line says so"
            found.setdefault(kind, Doubt(kind, line.number, None, text.strip(), seen, _WORDS_ONLY))
        elif _SKIPPED.search(text) and not _NOT_SEEN.search(text):
            skips.append(line)
    if len(skips) >= MANY_SKIPS and not found and _go_on(skips, lines):
        last = skips[-1]
        kind = FaultKind.SCALE_THRASH
        seen = f"{len(skips)} lines tell of a skipped step or an overflow"
        found[kind] = Doubt(kind, last.number, None, last.text.strip(), seen, "their share of all steps is not known")
    return list(found.values())


def _kind_of(text: str) -> FaultKind | None:
    raised = is_raised(text)
    if raised and _OVERFLOW.search(text):
        return FaultKind.DIVERGENCE
    for pattern, kind in ((_NUMBERS, FaultKind.NAN_LOSS), (_DIVERGED, FaultKind.DIVERGENCE)):
        match = pattern.search(without_calls(text))
        if match is None or (not raised and (_NOT_SEEN.search(text) or _IS_VALUE.search(text))):
            continue
        if quoting(text, match.start()) is None and not is_advice(text, match.start()):
            return kind
    return None
