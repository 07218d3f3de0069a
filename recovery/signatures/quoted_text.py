"""Decides whether a line is a message or only shows text: source code, comments, configurations.

Every pattern is bounded, because a line can have any length.
"""

from __future__ import annotations

import re
from functools import lru_cache

# The prefixes of lines in a log that several processes share: [rank3]:, 0:, [1,3]<stderr>:, worker-0:,
# (pid=7, ip=10.0.0.2), trainer-1  |, and the time that a container engine adds.
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

# A source line with its number, as in a notebook or a rich traceback: `--> 117  scores.masked_fill_(...)`.
_LISTING = re.compile(
    r"\s{0,12}(?:-{2,5}> ?\d{1,6}\b| {2,}\d{1,5} {2,}\S|[\u2502\u2503]\s{0,8}(?:\u2771\s{0,4})?\d{1,5}\s)"
)
# Source code, which can contain the text of a message.
_PROGRAM = re.compile(
    r"\s{0,80}(?:except\b|raise\b|import |from [\w.]{1,80} import|def \w|class \w|return\b(?! code)|assert\b|elif\b"
    r"|(?:if|while|for|with) .{1,300}:$|\w{1,60} = (?:[frbFRB]{0,2}[\"']|[\w.]{1,200}$)|\w{1,60}=[frbFRB]{1,2}[\"'])"
    # A string alone on its line, as in a call over several lines.
    r"|\s{4,80}[frbFRB]{0,2}(?:\".{0,400}\"|'.{0,400}')[,)]{0,3}$"
    # A pattern, as in a table of patterns.
    r"|\s{2,80}[rR][\"']"
)
# A message inside a call in source code: raise ValueError("..."), warnings.warn("...").
_CALL = re.compile(
    r"(?:(?:\braise\s{1,4}[\w.]{1,80}|\bwarn\w{0,20}|\blog\w{0,20}\.\w{1,20})\s?\("
    r"|\bassert\b[^\"']{0,200})\s{0,4}[frbFRB]{0,2}([\"'])"
    r".{0,2000}?(?:\1|$)"
)
_PRINT = re.compile(r"\s{0,80}(?:print|echo|puts|console\.log|printf)\b\s*\(?\s*[frbFRB]{0,2}[\"']")
_COMMENT = re.compile(r"\s{0,80}(?:#{1,6}(?!\d)!?|//|/\*|\"\"\")\s{0,20}")
_INNER_COMMENT = re.compile(r"\s{2,}#\s|\s//\s")
# A printed configuration: a rule of the job file, the output of argparse, a description field.
_CONFIG = re.compile(
    r"\bpatterns?[\"']?\s{0,4}[:=]|\bNamespace\(|\bfault[\"']?\s{0,4}[:=]\s{0,4}[\"']?[a-z0-9_]+[\"']?\s{0,4}[,}]"
    r"|^\s{0,40}-?\s{0,4}[\"']?(?:name|description|help|comment|note|title)[\"']?\s{0,4}[:=]\s"
)
# In a comment or a print call, a message counts when it is quoted as output: with its exception, or first.
_QUOTED = re.compile(r"(?i:\b\w{0,60}(?:error|exception)\b[\"'`]?: [^:]{0,80}$)|[a-z](?:Error|Exception): .{0,160}$")
_DETAIL = re.compile(r"[:\d]")


@lru_cache(maxsize=64)
def bare(text: str) -> str:
    """Return a line without the prefixes of a log that several processes share."""
    match = _PREFIX.match(text)
    return text[match.end() :] if match else text


def is_frame(text: str) -> bool:
    """Return whether a line is a frame of a traceback."""
    return 'File "' in text and bool(_FRAME.match(text))


def is_indented(text: str) -> bool:
    return bool(_INDENTED.match(bare(text)))


def is_program(text: str) -> bool:
    """Return whether a line is source code or a configuration, so that its text did not happen."""
    return bool(_CONFIG.search(text) or _LISTING.match(text) or _PROGRAM.match(bare(text)))


def without_calls(text: str) -> str:
    """Return a line with raise and warn calls replaced by blanks of the same length."""
    return _CALL.sub(lambda call: " " * len(call[0]), text) if "(" in text or "assert" in text else text


def quoting(text: str, start: int) -> bool | None:
    """Return whether a comment or print call quotes the message at `start` as output; None: the line is neither."""
    line = bare(text)
    mark = _COMMENT.match(line) or _PRINT.match(line)
    begin = mark.end() + len(text) - len(line) if mark else None
    if begin is None and (inner := _INNER_COMMENT.search(text, 0, start)):
        begin = inner.end()
    if begin is None:
        return None
    before = text[begin:start]
    # Quoted output has a colon or a number in it, a remark about a fault has none.
    is_first = len(before.strip(" -*\"'`")) <= 1 and bool(_DETAIL.search(text, start) or "##" in text[:begin])
    return is_first or bool(_QUOTED.search(before))


def without_comment(text: str) -> str | None:
    """Return the text of a comment, or None when the line is not a comment."""
    line = bare(text)
    mark = _COMMENT.match(line)
    return line[mark.end() :] if mark else None
