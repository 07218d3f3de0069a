"""Puts together what warns of a run that goes wrong while its numbers are finite: a blow-up, and a divergence."""

from __future__ import annotations

from rung.jobs.spec.recovery_spec import EarlyWarning
from rung.recovery.logs.reading import Reading, Readings
from rung.recovery.monitors.blow_up import BlowUp, BlowUpMonitor
from rung.recovery.monitors.divergence import DivergenceMonitor, DivergenceWarning


class EarlyWarningMonitor:
    """Follows a run with both monitors; without limits it never warns."""

    def __init__(self, limits: EarlyWarning | None) -> None:
        self._divergence = DivergenceMonitor(limits) if limits else None
        self._blow_up = BlowUpMonitor() if limits else None
        self._negative_term = False

    @property
    def active(self) -> bool:
        """Return whether what was warned of still goes on."""
        # Asked for with every reading.
        if self._divergence is None or self._blow_up is None:
            return False
        return self._divergence.active or self._blow_up.active

    def see(self, step: int | None, reading: Reading) -> DivergenceWarning | None:
        """Take one reading; return the warning that it completes."""
        if self._divergence is None or self._blow_up is None:
            return None
        if reading.loss_terms:
            self._negative_term |= any(reading.values.get(name, 0.0) < 0.0 for name in reading.loss_terms)
        warned = self._divergence.see(step, reading)
        if reading.loss is None:
            return warned
        blow_up = self._blow_up.see(step, reading.loss_name, reading.loss)
        return _warning_of(blow_up) if blow_up else warned

    def is_quiet(self, readings: Readings) -> bool:
        """Return whether these readings can be taken at once, as `see_quiet` does."""
        if self._divergence is None or self._blow_up is None:
            return True
        is_past = self._blow_up.is_quiet(readings.first.loss_name, readings.losses)
        return is_past and self._divergence.is_quiet(readings)

    def see_quiet(self, readings: Readings) -> int:
        """Take quiet readings, as long as nothing comes of them; return how many that are."""
        if self._divergence is None or self._blow_up is None:
            return len(readings.steps)
        count = self._divergence.see_quiet(readings)
        if count:
            self._negative_term |= any(min(term[:count]) < 0.0 for term in readings.terms)
            self._blow_up.see_quiet(readings.first.loss_name, readings.losses[:count])
        return count

    def lines_missing(self) -> None:
        """Count anew what must come in a row: readings are missing here."""
        for monitor in (self._divergence, self._blow_up):
            if monitor is not None:
                monitor.lines_missing()

    def at_end(self) -> DivergenceWarning | None:
        """Return the warning of a loss that ends far above its first value."""
        blow_up = self._blow_up.at_end(may_be_negative=self._negative_term) if self._blow_up else None
        return _warning_of(blow_up) if blow_up else None


def _warning_of(blow_up: BlowUp) -> DivergenceWarning:
    """Return the warning of a loss that blew up: a drift, unless it got there in one step."""
    return DivergenceWarning(blow_up.onset, "spike" if blow_up.jumped else "drift", blow_up.description)
