"""Finds a bad loss that a comment quotes: `# output: loss: nan`."""

from __future__ import annotations

import math

from rung.recovery.logs.free_text import read_free_text
from rung.recovery.signatures.quoted_text import without_comment


def quotes_bad_loss(text: str) -> bool:
    """Return whether a line is a comment that shows a loss that is not finite."""
    quoted = without_comment(text) if "loss" in text and "#" in text else None
    reading = read_free_text(quoted) if quoted else None
    return reading is not None and reading.loss is not None and not math.isfinite(reading.loss)
