"""Holds what a log says in words about bad numbers, where the numbers themselves come from inside.

Numbers from inside outrank words. A finite loss disproves words about one batch at once, and words about the whole run
when more of them come than can be written late. A script may check its loss before `backward` and stop: then the words
are all there is.
"""

from __future__ import annotations

from rung.jobs.model.fault import Fault
from rung.recovery.detect.candidates import Certainty
from rung.recovery.detect.last_exception import LATE_RECORDS
from rung.recovery.signatures.numeric import BAD_LOSS


class SaidInWords:
    """Remembers words about bad numbers until finite losses disprove them."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.certainty = Certainty.UNSURE
        self._times = 0
        self._finite_since = 0

    def begin(self, fault: Fault) -> None:
        """Take the fault of the first words."""
        self.fault, self.certainty = fault, Certainty.UNSURE

    def say(self, *, about_one_batch: bool) -> bool:
        """Take words; return whether they came so often without a loss that the script leaves every batch out."""
        if not about_one_batch:
            self.certainty = Certainty.PENDING
        self._times += 1
        self._finite_since = 0
        return self._times >= BAD_LOSS.from_start

    def lines_missing(self) -> None:
        """Count anew: finite losses may be missing here."""
        self._times = 0

    def see_finite(self) -> None:
        """Take a finite loss from inside; it means nothing while nothing is said."""
        self._times = 0
        self._finite_since += 1
        if self.certainty is Certainty.UNSURE or self._finite_since > LATE_RECORDS:
            self.fault = None
