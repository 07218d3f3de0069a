"""Monitors the perplexity beside a training loss: above the size of every vocabulary, a model is worse than a guess."""

from __future__ import annotations

import math
import re

# No vocabulary has so many words.
IMPOSSIBLE = 1e7
# Readings in a row, up to the end of the log.
FEWEST = 3
_VALUE = re.compile(
    r"(?<![a-z])(?:ppl|perplexity)[\"']?[ :=|]{1,6}(\d{1,300}(?:\.\d{0,40})?(?:e[-+]?\d{1,4})?|inf)\b", re.IGNORECASE
)


class PerplexityMonitor:
    """Follows the perplexities of one run; a loss that falls shows a run that learns, whatever it prints beside it."""

    def __init__(self) -> None:
        self._first_loss: float | None = None
        self._last_loss = math.nan
        self._impossible = 0

    def see(self, text: str, loss: float | None) -> None:
        """Take one line and its training loss."""
        if loss is None or not math.isfinite(loss):
            return
        match = _VALUE.search(text)
        if match is None:
            return
        self._first_loss = loss if self._first_loss is None else self._first_loss
        self._last_loss = loss
        self._impossible = self._impossible + 1 if float(match[1]) > IMPOSSIBLE else 0

    def lines_missing(self) -> None:
        """Count anew what must come in a row: readings are missing here."""
        self._impossible = 0

    @property
    def is_impossible(self) -> bool:
        """Return whether the log so far ends with impossible perplexities and a loss no lower than the first."""
        return self._impossible >= FEWEST and self._first_loss is not None and self._last_loss >= self._first_loss
