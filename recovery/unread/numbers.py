"""Watches what the reader of lines does not read: a loss under an unknown name or none, a perplexity beside a loss."""

from __future__ import annotations

from rung.jobs.model.fault import FaultKind
from rung.recovery.logs.reading import Reading
from rung.recovery.monitors.perplexity import PerplexityMonitor
from rung.recovery.unread.nan_rows import NanRows
from rung.recovery.unread.unknown_loss import UnknownLoss


class UnreadNumbers:
    """Adds to the readings of one log what they lack, and says what only its end decides."""

    def __init__(self) -> None:
        self._unknown_loss, self._rows, self._perplexity = UnknownLoss(), NanRows(), PerplexityMonitor()

    def add_to(self, reading: Reading | None, text: str) -> Reading | None:
        """Return the reading of a line, with the NaN of an unknown loss as its loss."""
        if not self._unknown_loss.is_known:
            reading = self._unknown_loss.add_to(reading, text)
            if not self._unknown_loss.is_known:
                self._rows.see(text)
        # Few lines have one, and it is asked of each.
        if ("ppl" in text or "erplexity" in text) and reading is not None and not reading.is_record:
            self._perplexity.see(text, reading.loss)
        return reading

    @property
    def adds_nothing(self) -> bool:
        """Return whether a line without a perplexity lacks nothing here."""
        return self._unknown_loss.is_known

    def lines_missing(self) -> None:
        """Count anew what must come in a row: lines are missing here."""
        for each in (self._unknown_loss, self._rows, self._perplexity):
            each.lines_missing()

    @property
    def shown_at_end(self) -> FaultKind | None:
        """Return the fault that the end of the log shows here, if it shows no other."""
        if not self._unknown_loss.is_known and self._rows.ends_bad:
            return FaultKind.NAN_LOSS
        return FaultKind.DIVERGENCE if self._unknown_loss.ends_high or self._perplexity.is_impossible else None
