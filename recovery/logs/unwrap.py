"""Joins names and values of a progress bar that rich wrapped over several lines.

Lightning's bar (rich) wraps its numbers at 80 columns when its output is a file, also between a name and its value:

    Epoch 2/2  ━━━━━━━━━━━━━━━━ 16/16 0:00:00 • 0:00:00 188.26it/s train_loss_step:
                                                                   0.111 val_loss:
                                                                   0.119
"""

from __future__ import annotations

import re

# The first line of a frame: the bar, a count, two times.
_FRAME = re.compile(r"[\u2501\u2578] {1,80}+\d{1,12}+/(?:\d{1,12}+|\?|--) {1,4}+[\d-]{1,4}+:[\d-]{2}:[\d-]{2} \u2022")
# The numbers are in a column to the right of the bar; code and configurations are not indented that far.
_FEWEST_BLANKS = 24
_NAME_AT_END = re.compile(r"(?<![\w./-])[A-Za-z_][\w./-]{0,60}+: {0,200}+\Z", re.ASCII)


class Unwrapper:
    """Moves the name at the end of a wrapped line to the value at the start of the next line."""

    def __init__(self) -> None:
        self.in_frame = False
        self._name = ""

    def join_wrapped(self, text: str) -> str:
        """Return the line with the name of its first value before it."""
        if not self.in_frame and "\u2022" not in text:
            return text
        if self.in_frame and text.startswith(" " * _FEWEST_BLANKS):
            text = f"{self._name}{text.lstrip(' ')}"
        else:
            self.in_frame = bool(_FRAME.search(text))
        self._name = ""
        if self.in_frame and (match := _NAME_AT_END.search(text, max(0, len(text) - 300))):
            self._name = match[0].rstrip(" ") + " "
        return text
