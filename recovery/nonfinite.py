"""Owns the watch over the training loss: when a loss that is not finite is one bad batch, and when the run is lost."""

from __future__ import annotations

import math

from recovery.reading import Reading

# One NaN is a batch that a healthy run skips; the next reported loss decides.
CONFIRMED_AT = 2
# Finite losses in a row that prove a run got past whatever it was.
PROOF_OF_HEALTH = 3
# A scaler that has skipped every step since the start has left the weights alone, so there is time to see whether its
# scale collapses (65536 is below 1 after 17 halvings, plus 20 reports), which is another fault with another cure.
PATIENCE = 64


class LossWatch:
    """Follows the training loss through its readings and says when an incident begins, is confirmed, or is over."""

    def __init__(self) -> None:
        self._bad = 0
        self._name = ""
        self._silent = 0
        self._good = 0
        self._ever_good = False
        self._all_skipped = True

    def see(self, reading: Reading) -> bool:
        """Take one reading; return True when an incident begins with it."""
        if reading.loss is None:
            return False
        if not math.isfinite(reading.loss):
            return self._see_bad(reading.loss_name, skipped=bool(reading.skipped))
        if _is_silent_nan(reading):
            return self._see_silent()
        # Exactly 0 is what a log shows that filters NaN out: it proves nothing either way.
        if reading.loss != 0:
            self._see_good(reading.loss_name)
        return False

    def hint(self) -> bool:
        """Take a bad loss that was told in words; return True when an incident begins with it."""
        return self._see_bad("", skipped=False)

    @property
    def pending(self) -> bool:
        return self._bad > 0

    @property
    def untouched(self) -> bool:
        """Tell whether the scaler has skipped every step so far: no loss was ever finite, the weights are as new."""
        return self._all_skipped and not self._ever_good

    @property
    def confirmed(self) -> bool:
        if self.untouched and self._bad < PATIENCE:
            return False
        return self._bad >= CONFIRMED_AT

    @property
    def healthy(self) -> bool:
        """Tell whether the last few losses were finite."""
        return self._good >= PROOF_OF_HEALTH

    @property
    def ever_good(self) -> bool:
        return self._ever_good

    def _see_bad(self, name: str, *, skipped: bool) -> bool:
        self._good = 0
        self._bad += 1
        self._all_skipped = self._all_skipped and skipped
        if self._bad == 1:
            self._name = name
        return self._bad == 1

    def _see_silent(self) -> bool:
        self._silent += 1
        if self._silent < CONFIRMED_AT or self._bad:
            return False
        self._bad, self._name, self._good, self._all_skipped = CONFIRMED_AT, "", 0, False
        return True

    def _see_good(self, name: str) -> None:
        self._silent = 0
        self._good += 1
        self._ever_good = True
        # Another loss being finite proves nothing of this one until it has been so for a while.
        same = self._bad < CONFIRMED_AT and name == self._name
        if same or self.healthy:
            self._bad, self._all_skipped = 0, True


def _is_silent_nan(reading: Reading) -> bool:
    """Tell a NaN that the framework's log filtered out: a loss of exactly 0 beside a gradient norm of NaN."""
    return reading.loss == 0 and reading.grad_norm is not None and math.isnan(reading.grad_norm)
