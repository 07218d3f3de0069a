"""Monitors the training loss for values that are not finite. One bad batch is not a fault."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rung.recovery.logs.reading import Reading
from rung.recovery.signatures.numeric import BAD_LOSS, FROZEN_LOSS, HIDDEN_NAN, PROOF_OF_HEALTH

HIDDEN_BY_ZERO = "the log hides NaN, as transformers' logging_nan_inf_filter does: a loss of 0 beside gradients of NaN"
HIDDEN_BY_FREEZE = "the log hides NaN: the loss no longer moves at all beside gradients of NaN"


class LossMonitor:
    """Follows the training loss and reports when an incident begins, is confirmed, or is over."""

    def __init__(self) -> None:
        # How a NaN was found although the log has no loss of NaN; empty when it has one.
        self.note = ""
        # Losses in a row that were not finite, up to the newest.
        self.bad_in_a_row = 0
        self._name = ""
        self._zeros = 0
        self._frozen = 0
        self._last: float | None = None
        self._moved = False
        self._good = 0
        self.ever_good = False
        self._all_skipped = True
        self._scale: float | None = None

    def see(self, reading: Reading) -> bool:
        """Take one reading; return True when an incident begins with it."""
        loss, norm = reading.loss, reading.grad_norm
        if loss is None:
            return False
        if -math.inf < loss < math.inf and loss != 0 and (norm is None or norm == norm):
            self._last, self._moved, self._frozen = loss, True, 0
            self._see_good(reading.loss_name)
            return False
        if not math.isfinite(loss):
            return self._see_bad(reading.loss_name, skipped=self._was_skipped(reading))
        if hidden := self._see_hidden(reading):
            return self._begin_hidden(hidden)
        # A log that filters NaN out shows exactly 0, so a loss of 0 proves nothing.
        if loss != 0 and not self._frozen:
            self._see_good(reading.loss_name)
        return False

    @property
    def is_quiet(self) -> bool:
        """Return whether losses were good so far, so that more good ones change no more than what `see_good` does."""
        return self.ever_good and not self.bad_in_a_row and self._all_skipped

    def see_good(self, losses: Sequence[float]) -> None:
        """Take losses in a row of which none is 0; all are finite, and so are the norms beside them."""
        self._last, self._moved = losses[-1], True
        self._frozen = self._zeros = 0
        self._good += len(losses)

    def _was_skipped(self, reading: Reading) -> bool:
        """Return whether the scaler skipped a bad step: as reported, or else because the scale fell."""
        before, self._scale = self._scale, reading.scale
        if reading.skipped is not None or reading.scale is None:
            return bool(reading.skipped)
        return before is None or reading.scale < before or reading.scale == 0

    def hint(self) -> bool:
        """Take a message about a bad loss; return True when an incident begins with it."""
        return self._see_bad("", skipped=False)

    def lines_missing(self) -> None:
        """Count anew what must come in a row, unless it is confirmed: finite losses may be missing here."""
        self._frozen = 0
        if not self.confirmed:
            self.bad_in_a_row = 0

    @property
    def pending(self) -> bool:
        return self.bad_in_a_row > 0

    @property
    def untouched(self) -> bool:
        """Return whether the scaler has skipped every step so far: no loss was finite, no weight has changed."""
        return self._all_skipped and not self.ever_good

    @property
    def confirmed(self) -> bool:
        if self.untouched and self.bad_in_a_row < BAD_LOSS.from_start:
            return False
        return self.bad_in_a_row >= BAD_LOSS.consecutive

    @property
    def healthy(self) -> bool:
        """Return whether the last few losses were finite."""
        return self._good >= PROOF_OF_HEALTH.consecutive

    def _see_bad(self, name: str, *, skipped: bool) -> bool:
        self._good = 0
        self.bad_in_a_row += 1
        self._all_skipped = self._all_skipped and skipped
        if self.bad_in_a_row == 1:
            self._name, self.note = name, ""
        return self.bad_in_a_row == 1

    def _see_hidden(self, reading: Reading) -> str:
        """Return how a finite loss hides a NaN, once it has lasted long enough."""
        norm = reading.grad_norm
        bad_gradients = norm is not None and math.isnan(norm) and not reading.skipped
        if not bad_gradients:
            self._last, self._frozen = reading.loss, 0
            self._moved = self._moved or reading.loss != 0
            return ""
        same, self._last = reading.loss == self._last, reading.loss
        if reading.loss == 0:
            self._zeros, self._frozen = self._zeros + 1, 0
            if self._zeros >= HIDDEN_NAN.consecutive:
                return HIDDEN_BY_ZERO
        else:
            self._frozen = self._frozen + 1 if same else 1
        # While a new scaler lowers its scale, no weight changes, so the loss can stay the same.
        enough = FROZEN_LOSS.consecutive if self._moved else FROZEN_LOSS.from_start
        return HIDDEN_BY_FREEZE if self._frozen >= enough else ""

    def _begin_hidden(self, note: str) -> bool:
        if self.bad_in_a_row:
            return False
        self.bad_in_a_row, self._name, self._good, self._all_skipped = BAD_LOSS.consecutive, "", 0, False
        self.note = note
        return True

    def _see_good(self, name: str) -> None:
        self._zeros = 0
        self._good += 1
        self.ever_good = True
        if not self.bad_in_a_row and self._all_skipped:
            return
        # A finite loss with another name proves nothing until it has been finite for a while.
        same = self.bad_in_a_row < BAD_LOSS.consecutive and name == self._name
        if same or self.healthy:
            self.bad_in_a_row, self._all_skipped = 0, True
