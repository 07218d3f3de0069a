"""Decides whether a line is a message or only shows text: source, comments, configurations, prefixes.

Every pattern is bounded: a line is as long as whoever wrote it likes.
"""

from __future__ import annotations

import re
from functools import lru_cache

# What many processes that share one log put before each of their lines: [rank3]:, 0:, [1,3]<stderr>:, worker-0:,
# (pid=7, ip=10.0.0.2), trainer-1  |, and the time a container engine adds.
PREFIX = (
    r"(?i:(?:\[?rank ?\d{1,6}\]?[:\]] ?:?|\[[a-z]{1,20}\d{1,6}\]:| {0,4}\d{1,6}:(?= )|\[\d{1,6}\]:?"
    r"|\[\d{1,6},\d{1,6}\]<\w{1,10}>:?"
    r"|\([^()]{0,60}\bpid=\d{1,10}[^()]{0,60}\)|(?!\w{0,40}(?:Error|Exception))[\w.-]{1,60}\d:(?= )"
    r"|[\w.-]{1,60} {0,20}\|(?= )"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?(?: std(?:out"
    r"|err) [FP])?(?= )) {0,1}){0,3}"
)
_PREFIX = re.compile(PREFIX)
_FRAME = re.compile(r'.{0,60}\bFile "[^"]{1,400}", line \d+')
_INDENTED = re.compile(r" {2,}\S")

# A source line that a notebook or a fancy traceback shows with its number: `--> 117  scores.masked_fill_(...)`.
_LISTING = re.compile(
    r"\s{0,12}(?:-{2,5}> ?\d{1,6}\b| {2,}\d{1,5} {2,}\S|[\u2502\u2503]\s{0,8}(?:\u2771\s{0,4})?\d{1,5}\s)"
)
# Program text that can hold a message but never says one.
_PROGRAM = re.compile(
    r"\s{0,80}(?:except\b|raise\b|import |from [\w.]{1,80} import|def \w|class \w|return\b(?! code)|assert\b|elif\b"
    r"|(?:if|while|for|with) .{1,300}:$|\w{1,60} = (?:[frbFRB]{0,2}[\"']|[\w.]{1,200}$)|\w{1,60}=[frbFRB]{1,2}[\"'])"
    # A text alone on its line, as a call over several lines has it.
    r"|\s{4,80}[frbFRB]{0,2}(?:\".{0,400}\"|'.{0,400}')[,)]{0,3}$"
    # A pattern, as the key of a table of them.
    r"|\s{2,80}[rR][\"']"
)
# A message inside a call of the program's own text: raise ValueError("..."), warnings.warn("...").
_CALL = re.compile(
    r"(?:(?:\braise\s{1,4}[\w.]{1,80}|\bwarn\w{0,20}|\blog\w{0,20}\.\w{1,20})\s?\("
    r"|\bassert\b[^\"']{0,200})\s{0,4}[frbFRB]{0,2}([\"'])"
    r".{0,2000}?(?:\1|$)"
)
_PRINT = re.compile(r"\s{0,80}(?:print|echo|puts|console\.log|printf)\b\s*\(?\s*[frbFRB]{0,2}[\"']")
_COMMENT = re.compile(r"\s{0,80}(?:#{1,6}(?!\d)!?|//|/\*|\"\"\")\s{0,20}")
_INNER_COMMENT = re.compile(r"\s{2,}#\s|\s//\s")
# A configuration that was printed: a rule of the job file, argparse's dump, a field that describes.
_CONFIG = re.compile(
    r"\bpatterns?[\"']?\s{0,4}[:=]|\bNamespace\(|\bfault[\"']?\s{0,4}[:=]\s{0,4}[\"']?[a-z0-9_]+[\"']?\s{0,4}[,}]"
    r"|^\s{0,40}-?\s{0,4}[\"']?(?:name|description|help|comment|note|title)[\"']?\s{0,4}[:=]\s"
)
# In a comment or a print call, a message counts where it is quoted as what came out: with its exception, or first.
_QUOTED = re.compile(r"(?i:\b\w{0,60}(?:error|exception)\b[\"'`]?: [^:]{0,80}$)|[a-z](?:Error|Exception): .{0,160}$")


_DETAIL = re.compile(r"[:\d]")


@lru_cache(maxsize=64)
def bare(text: str) -> str:
    """Return a line without what stands before it when many processes share a log."""
    match = _PREFIX.match(text)
    return text[match.end() :] if match else text


def is_frame(text: str) -> bool:
    """Tell whether a line is a frame of a traceback."""
    return 'File "' in text and bool(_FRAME.match(text))


def is_indented(text: str) -> bool:
    return bool(_INDENTED.match(bare(text)))


def is_program(text: str) -> bool:
    """Tell whether a line is the program's own text, or a configuration: what it holds is not what happened."""
    return bool(_CONFIG.search(text) or _LISTING.match(text) or _PROGRAM.match(bare(text)))


def without_calls(text: str) -> str:
    """Return a line with the texts of raise and warn calls blanked out, each character in its place."""
    return _CALL.sub(lambda call: " " * len(call[0]), text) if "(" in text or "assert" in text else text


def quoting(text: str, start: int) -> bool | None:
    """Tell how a line that shows text quotes the message at `start`: as what came out, or not. None: it shows none."""
    shown_text = bare(text)
    mark = _COMMENT.match(shown_text) or _PRINT.match(shown_text)
    begin = mark.end() + len(text) - len(shown_text) if mark else None
    if begin is None and (inner := _INNER_COMMENT.search(text, 0, start)):
        begin = inner.end()
    if begin is None:
        return None
    before = text[begin:start]
    # A remark speaks of a fault; what came out has a colon or a number in it. A heading is prose.
    is_first = len(before.strip(" -*\"'`")) <= 1 and bool(_DETAIL.search(text, start) or "##" in text[:begin])
    return is_first or bool(_QUOTED.search(before))


def without_comment(text: str) -> str | None:
    """Return what stands behind a comment's mark, or None when the line is no comment."""
    shown_text = bare(text)
    mark = _COMMENT.match(shown_text)
    return shown_text[mark.end() :] if mark else None
