"""Counts the steps that a loss scaler skipped: too many mean that a run is leaving the range of FP16.

It finds a scale that falls from time to time and never grows, and skipped steps in a log without a scale. loss_scale.py
finds a scale that goes up and down or falls on every step, because other rungs help there.
"""

from __future__ import annotations

from rung.jobs.spec.recovery_spec import EarlyWarning

# Reports over which skipped steps and back-offs are counted, and the fewest that make a share.
WINDOW = 128
FEWEST = 100


class SkippedStepMonitor:
    """Counts skipped steps and back-offs after the warm-up, in which a scaler finds its scale."""

    def __init__(self, limits: EarlyWarning) -> None:
        self._limits = limits
        self._in_a_row = (1 << limits.skipped_in_a_row) - 1
        self._mask = (1 << WINDOW) - 1
        self._seen = 0
        # One bit per report, the latest lowest: was its step skipped, did the scale begin to fall with no growth since.
        self._skipped = 0
        self._falls = 0
        self._falling = False
        self._scale: float | None = None
        self._step: int | None = None
        self.began: int | None = None
        self.description = ""
        # Whether the warning is about single steps with good ones between them.
        self.is_isolated = False
        self._unit = "reports"
        # Above 0 when too many steps were skipped.
        self.evidence = 0.0

    def add(
        self, step: int | None, scale: float | None, skipped: bool | None, *, reports_all_skips: bool = False
    ) -> None:
        """Take the scale of one reported step and whether it was skipped; a scale that fell means it was.

        `reports_all_skips`: the job reports every skipped step, so no step without a report was skipped.
        """
        self._seen += 1
        unreported = step - self._step - 1 if reports_all_skips and step is not None and self._step is not None else 0
        self._step = step
        before = self._scale
        if scale == before and not skipped and not self._skipped and not self._falls and not self.evidence:
            return
        fell = scale is not None and before is not None and scale < before
        if scale is not None:
            if before is not None and scale > before:
                self._falls = 0
            self._scale = scale
        bad = fell if skipped is None else skipped
        if not self._skipped:
            self.began = step
        # The window counts updates where all skipped ones are reported, so that it does not depend on the machine.
        self._unit = "updates" if reports_all_skips else "reports"
        shift = 1 + min(max(unreported, 0), WINDOW)
        self._skipped = (self._skipped << shift | bad) & self._mask
        self._falls = (self._falls << shift | (fell and not self._falling)) & self._mask
        self._falling = fell
        self.description = self._judge(bad=bad) if self._seen > self._limits.warm_up else ""
        self.evidence = 1.0 if self.description else 0.0

    def is_quiet(self, scale: float | None) -> bool:
        """Return whether no step was skipped lately, and this scale is the one before."""
        return scale == self._scale and not (self._skipped or self._falls or self.evidence)

    def add_quiet(self, count: int, step: int) -> None:
        """Take so many reports of the same scale without a skipped step, up to this step."""
        self._seen += count
        self._step = step

    def lines_missing(self) -> None:
        """Forget the steps before: those that were not skipped may be missing here."""
        self._skipped = self._falls = 0
        self._falling, self._step = False, None
        self.description, self.evidence = "", 0.0

    def _judge(self, *, bad: bool) -> str:
        limits = self._limits
        self.is_isolated = False
        if self._scale is None and self._skipped & self._in_a_row == self._in_a_row:
            return f"{limits.skipped_in_a_row} steps skipped in a row"
        falls = self._falls.bit_count()
        if falls >= limits.backoffs:
            self.is_isolated = not self._skipped & self._skipped >> 1
            return f"the loss scale fell {falls} times in {WINDOW} {self._unit} and never grew"
        reports = min(self._seen - limits.warm_up, WINDOW)
        share = (self._skipped & (1 << reports) - 1).bit_count() / reports
        # While every step is skipped, it can be a collapse, and waiting costs nothing.
        if reports >= FEWEST and share > limits.skipped_share and not bad:
            return f"{share:.0%} of the last {reports} steps skipped"
        return ""
