"""Monitors the gradient norm: tells a loss scaler at work from a run that is lost.

Beside a back-off, or in the first steps of mixed precision, such a norm is healthy: the step is skipped and the scale
falls. What is not healthy is a norm that stays so.
"""

from __future__ import annotations

import math

from rung.recovery.logs.reading import Reading
from rung.recovery.signatures.numeric import BAD_GRADIENT


class GradientMonitor:
    """Follows the gradient norm through its readings and says when an incident begins, is confirmed, or is over."""

    def __init__(self) -> None:
        self._bad = 0
        self._nan = 0
        self._ever_good = False

    def see(self, reading: Reading) -> bool:
        """Take one reading; return True when an incident begins with it."""
        if reading.grad_norm is None:
            return False
        if math.isfinite(reading.grad_norm):
            self._bad = self._nan = 0
            self._ever_good = True
            return False
        # A loss that is not finite itself is another watch's business, and a step that was skipped did no harm.
        if reading.skipped or (reading.loss is not None and not math.isfinite(reading.loss)):
            return False
        return self._see_bad(is_nan=math.isnan(reading.grad_norm))

    def hint(self) -> bool:
        """Take bad gradients that were told in words; return True when an incident begins with them."""
        return self._see_bad(is_nan=True)

    def back_off(self) -> None:
        """Take a step that the scaler skipped: what was bad just before is explained by it."""
        self._bad = self._nan = 0

    @property
    def pending(self) -> bool:
        """Tell whether the log so far ends with bad gradients: of NaN, or of several infinities."""
        return self._nan >= BAD_GRADIENT.at_end or self._bad >= BAD_GRADIENT.consecutive

    @property
    def confirmed(self) -> bool:
        return self._bad >= (BAD_GRADIENT.consecutive if self._ever_good else BAD_GRADIENT.from_start)

    def _see_bad(self, *, is_nan: bool) -> bool:
        self._bad += 1
        self._nan += is_nan
        return self._bad == 1
