"""Follows the last exception that a log shows, and whether it ended the training.

The rule: an exception in a traceback ended the training when no loss and no held-out value came after it. That holds
for every kind that only training code raises. A failed upload or a script's own error may come after a finished run,
so any other kind counts only where steps were missing in the bar, or where it is the last word of a log that does not
look finished. Records count when there are more of them than can be written late.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rung.jobs.model.fault import Fault, FaultKind
from rung.recovery.logs.line_reader import MARK, read
from rung.recovery.logs.metric_names import is_held_out
from rung.recovery.logs.reading import Reading
from rung.recovery.signatures.quoted_text import PREFIX
from rung.recovery.signatures.search import is_raised, is_teardown

# When a script ends, rung_inside still writes two batches of numbers from the GPU and the last update.
LATE_RECORDS = 3
# Not from the code of the training: a finished run can end with them.
_FROM_OUTSIDE = frozenset({FaultKind.INFRA_FAULT, FaultKind.COMM_FAULT, FaultKind.UNKNOWN_EXIT})
_BARE_NAME = re.compile(rf"{PREFIX}(?:[A-Za-z_]\w{{0,60}}\.){{0,12}}[A-Z]\w{{0,80}}(?:Error|Exception)\s{{0,4}}$")
_FINISHED = re.compile(r"\b(?:done|finished|complete|completed|saved)\b", re.IGNORECASE)
_IN_A_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
_IN_A_THREAD = "Exception in thread"
_WORD = re.compile(r"[A-Za-z0-9]")


class LastException:
    """Remembers the last exception until the training is seen to go on."""

    def __init__(self) -> None:
        # The exception after which the training has not gone on yet.
        self.fault: Fault | None = None
        self._is_harmless = False
        self._looked_finished = False
        self._said_more = False
        self._records = 0
        # The latest state of a bar with a loss: it is drawn again when it is closed.
        self._bar: tuple[int | None, int, float] | None = None

    def begin(self, before: Sequence[str]) -> None:
        """Take the lines before the first frame of a traceback."""
        opening = before[-2:]
        self._is_harmless = any(is_teardown(line) or _IN_A_THREAD in line for line in opening)
        if not any(line.startswith(_IN_A_CHAIN) for line in opening):
            self._looked_finished = _looks_finished(before)

    def end(self, fault: Fault) -> None:
        """Take the last line of a traceback as a fault."""
        if not self._is_harmless:
            self.fault, self._said_more, self._records = fault, False, 0

    def follow(self, text: str) -> None:
        """Take a line after the exception."""
        # Below the exception, an indented line is the rest of its message.
        own = MARK in text or text.startswith(("rung: ", " "))
        self._said_more = self._said_more or (not own and bool(_WORD.search(text)))

    def lines_missing(self) -> None:
        """Forget the exception: the training may have gone on in lines that are missing here."""
        self.fault = None

    def see(self, reading: Reading) -> None:
        """Take one reading, of a record or of free text."""
        bar = self._bar
        if reading.total is not None and reading.loss is not None:
            self._bar = (reading.step, reading.total, reading.loss)
        if self.fault is None:
            return
        if reading.is_record and reading.loss is not None:
            self._records += 1
            goes_on = self._records > LATE_RECORDS
        else:
            goes_on = _is_measured(reading) and (reading.total is None or self._bar != bar)
        if goes_on:
            self.fault = None

    @property
    def cause(self) -> Fault | None:
        """Return the exception that ended the training where only training code raises it."""
        return None if self.fault is None or self.fault.kind in _FROM_OUTSIDE else self.fault

    @property
    def ended_training(self) -> Fault | None:
        """Return the exception that ended the training, by the rule above."""
        fault = self.fault
        if fault is None or self.cause:
            return fault
        is_short = self._bar is not None and (self._bar[0] or 0) < self._bar[1]
        is_whole = self._bar is not None and not is_short
        is_last_word = not (self._said_more or self._looked_finished or is_whole)
        return fault if is_short or is_last_word else None


def is_exception(text: str) -> bool:
    """Return whether a line right below the frames of a traceback is its exception."""
    return (is_raised(text) or bool(_BARE_NAME.match(text))) and not is_teardown(text)


def _is_measured(reading: Reading) -> bool:
    """Return whether a reading has a loss or a value on held-out data."""
    if reading.loss is not None or reading.held_out_loss is not None:
        return True
    return any(is_held_out(name) for name in reading.values)


def _looks_finished(before: Sequence[str]) -> bool:
    """Return whether a held-out value or a word such as `saved` came after the last training loss."""
    for line in reversed(before):
        reading = read(line)
        if reading is not None and reading.loss is not None:
            return False
        if _FINISHED.search(line) or (reading is not None and _is_measured(reading)):
            return True
    return False
