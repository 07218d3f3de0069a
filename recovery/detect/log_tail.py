"""Keeps the last lines of a log, for an exit without a known fault, and follows tracebacks."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from rung.recovery.detect.several_ranks import has_gone_on, is_of_another_rank
from rung.recovery.logs.lines import Line
from rung.recovery.signatures import Signature
from rung.recovery.signatures.quoted_text import bare, is_frame, is_indented
from rung.recovery.signatures.search import search_frame

MAX_EVIDENCE = 500
TAIL_LINES = 20
# A traceback shows at most so many lines of the program below one frame.
MAX_SOURCE = 6
MAX_SHOWN = 300
# A frame's file without its folders, and its line.
_PLACE = re.compile(r'\bFile "(?:[^"]{0,400}[/\\])?([^"/\\]{1,200})", line (\d{1,9})')
# Frames of torch and of rung_inside do not show what the program did.
_NOT_ITS_OWN = re.compile(r"[/\\](?:(?:site|dist)-packages[/\\]torch|rung_inside)[/\\]")


# Two streams in one log: the exception of one right behind a line of source code of the other.
_GLUED = re.compile(r"\)(?:\w{1,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception): ")


class Tail:
    """Keeps the last lines, and the first uncaught exception that no signature knows."""

    def __init__(self) -> None:
        self.unknown_exception = ""
        # The step that the first rank had come to; None: not known.
        self._raised_at: int | None = None
        self._has_step = False
        self._lines: deque[Line] = deque(maxlen=TAIL_LINES)

    def remember(self, line: Line) -> None:
        lines = self._lines
        # A progress bar redrawn on its line takes one place, as on a terminal.
        if lines and lines[-1].number == line.number:
            lines.pop()
        if line.text.strip():
            lines.append(line)

    def remember_all(self, number: int, texts: Sequence[str]) -> None:
        """Keep lines in a row, none of them blank; the first has this number."""
        self.remember(Line(number, texts[0]))
        kept = range(max(1, len(texts) - TAIL_LINES), len(texts))
        self._lines.extend([Line(number + place, texts[place]) for place in kept])

    def remember_exception(self, text: str, step: int | None) -> None:
        """Keep the first uncaught exception that no signature knows, and the step at which it came."""
        self.unknown_exception = text[:MAX_EVIDENCE].rstrip()
        self._raised_at, self._has_step = step, step is not None

    def see_loss(self, step: int | None, *, healthy: bool) -> None:
        """Forget the unknown exception if a loss of the first rank at this step shows that the run goes on.

        `healthy`: the last few losses were finite.
        """
        if not self.unknown_exception:
            return
        if self._raised_at is None and is_of_another_rank(self.unknown_exception):
            self._raised_at = step
        elif healthy and has_gone_on(self.unknown_exception, self._raised_at, step, exact=self._has_step):
            self.unknown_exception = ""

    def before(self) -> list[str]:
        """Return the lines before the latest one."""
        return [line.text for line in self._lines][:-1]

    def lines(self) -> list[str]:
        """Return the last lines, with the unknown exception at the end."""
        lines = [line.text[:MAX_EVIDENCE] for line in self._lines]
        exception = self.unknown_exception
        return [*lines[1:], exception] if exception and exception != lines[-1] else lines


class Traceback:
    """Follows the frames of tracebacks: the program text below a frame is never a message."""

    def __init__(self) -> None:
        # The row of the frame that the log has come to, when no exception has followed it yet.
        self.cut_frame: Signature | None = None
        self._below = 0
        # Whether this line is the first frame of a traceback, or the one right below its last frame.
        self.begins = self.ends = False
        # The innermost line of the program's own, until the line after the exception.
        self.source = ""
        self._held = False
        self._place: str | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether the next line may belong to the traceback, or ends what was held of it."""
        return self._below > 0 or self.cut_frame is not None or bool(self.source)

    def lines_missing(self) -> None:
        """Close what is open: the lines that would have done so may be missing here."""
        self.cut_frame, self._below, self.source, self._held, self._place = None, 0, "", False, None

    def contains(self, text: str) -> bool:
        """Tell whether a line is a frame, or program text shown below one."""
        self.begins = self.ends = False
        if is_frame(text):
            self.begins = not self._below
            self._below = MAX_SOURCE
            self.cut_frame = search_frame(text)
            self._enter(text)
            return True
        if self._below and is_indented(text) and not _GLUED.search(text):
            self._below -= 1
            self._show(text)
            return True
        self.ends, self._below = self._below > 0, 0
        if text.strip():
            self.cut_frame = None
            self.source, self._held = self.source if self._held else "", False
        return False

    def _enter(self, frame: str) -> None:
        """Come to the next frame."""
        self.source, self._held = self.source if self._held else "", True
        match = _PLACE.search(frame)
        self._place = f"{match[1]}:{match[2]}" if match and not _NOT_ITS_OWN.search(frame) else None

    def _show(self, text: str) -> None:
        if self._place and any(sign.isalpha() for sign in text):
            self.source, self._place = f"{self._place}: {bare(text).strip()}"[:MAX_SHOWN], None
