"""Monitors the gradient norm for values that are not finite.

With a back-off, or in the first steps of mixed precision, such a norm is healthy: the step is skipped and the scale
falls. A norm that stays not finite is a fault.
"""

from __future__ import annotations

import math

from rung.recovery.logs.reading import Reading
from rung.recovery.signatures.numeric import BAD_GRADIENT

# Finite losses after words about bad gradients, in a log without norms.
GOT_PAST = 16


class GradientMonitor:
    """Follows the gradient norm and reports when an incident begins, is confirmed, or is over."""

    def __init__(self) -> None:
        # Bad norms up to the newest, and whether any was finite.
        self.bad = 0
        self.ever_good = False
        self._nan = 0
        self._finite_losses = 0

    def see(self, reading: Reading) -> bool:
        """Take one reading; return True when an incident begins with it."""
        if reading.grad_norm is None:
            self._see_loss(reading.loss)
            return False
        if math.isfinite(reading.grad_norm):
            self.bad = self._nan = 0
            self.ever_good = True
            return False
        # LossMonitor handles a loss that is not finite, and a skipped step does no harm.
        if reading.skipped or (reading.loss is not None and not math.isfinite(reading.loss)):
            return False
        return self._see_bad(is_nan=math.isnan(reading.grad_norm))

    def hint(self) -> bool:
        """Take a message about bad gradients; return True when an incident begins with it."""
        return self._see_bad(is_nan=True)

    def back_off(self) -> None:
        """Take a step that the scaler skipped; it explains the bad gradients before it."""
        self.bad = self._nan = 0

    def lines_missing(self) -> None:
        """Count anew what must come in a row, unless it is confirmed: finite norms may be missing here."""
        if not self.confirmed:
            self.bad = self._nan = 0

    @property
    def pending(self) -> bool:
        """Return whether the log so far ends with bad gradients: NaN, or several infinite norms."""
        return self._nan >= BAD_GRADIENT.at_end or self.bad >= BAD_GRADIENT.consecutive

    @property
    def confirmed(self) -> bool:
        return self.bad >= (BAD_GRADIENT.consecutive if self.ever_good else BAD_GRADIENT.from_start)

    def _see_loss(self, loss: float | None) -> None:
        """Take a loss without a norm: where a log prints none, so many finite losses show that it got past one step."""
        if loss is None or not self.bad or self.confirmed:
            return
        self._finite_losses = self._finite_losses + 1 if math.isfinite(loss) and loss != 0 else 0
        if self._finite_losses >= GOT_PAST:
            self.bad = self._nan = 0

    def _see_bad(self, *, is_nan: bool) -> bool:
        self._finite_losses = 0
        self.bad += 1
        self._nan += is_nan
        return self.bad == 1
