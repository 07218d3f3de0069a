"""Tests that what is left out for a line with healthy numbers changes nothing: the long way comes to the same state."""

from __future__ import annotations

import math
import random

import pytest

from rung.jobs.model.fault import FaultKind
from rung.jobs.spec.recovery_spec import EarlyWarning
from rung.recovery.detect.candidates import FaultCandidates
from rung.recovery.detect.detector import Detector
from rung.recovery.detect.fault_builder import FaultBuilder
from rung.recovery.detect.numeric_faults import NumericFaults
from rung.recovery.logs.lines import Line
from rung.recovery.logs.reading import Reading
from rung.recovery.monitors.loss_finite import LossMonitor
from rung.recovery.monitors.loss_scale import Backoff
from rung.runner.log_reading.state_codec import encode

NAN, INF = math.nan, math.inf


class LongLossMonitor(LossMonitor):
    """Looks for a hidden NaN behind each loss."""

    def see(self, reading: Reading) -> bool:
        loss = reading.loss
        if loss is None:
            return False
        if not math.isfinite(loss):
            return self._see_bad(reading.loss_name, skipped=self._was_skipped(reading))
        if hidden := self._see_hidden(reading):
            return self._begin_hidden(hidden)
        if loss != 0 and not self._frozen:
            self._see_good(reading.loss_name)
        return False


class LongNumericFaults(NumericFaults):
    """Asks each monitor about each reading."""

    def take(self, step, reading):
        found = []
        if reading.loss is not None:
            self._scales.see_finite_loss() if math.isfinite(reading.loss) else None
            found += self._take_loss(step, reading)
        if reading.grad_norm is not None or self._gradients.pending:
            began = self._gradients.see(reading)
            if began or self._bad_gradient is not None:
                found += self._update_gradients(began=began)
        if reading.scale is not None or reading.skipped:
            kind = self._scales.report(step, reading.scale, reading.skipped)
            found += self._add_scale(kind) if kind else []
        found += self._take_warning(step, reading)
        if reading.held_out_loss is not None:
            found += self._take_held_out(reading.held_out_loss)
        return found


def numbers(warning: EarlyWarning, kind: type[NumericFaults]) -> NumericFaults:
    return kind(warning, FaultCandidates(), FaultBuilder())


def random_reading(dice: random.Random, step: int, bad: float) -> Reading:
    """Return a reading, `bad`: how often each of its numbers is not healthy."""

    def number(healthy: float, *others: float) -> float:
        return dice.choice(others) if dice.random() < bad else healthy

    return Reading(
        step=step,
        loss=number(2 + dice.random(), NAN, INF, 0.0, 1e6, 2.0) if dice.random() < 0.9 else None,
        lr=1e-3,
        grad_norm=number(dice.random() + 0.1, NAN, NAN, INF, 1e5) if dice.random() < 0.7 else None,
        scale=number(1024.0, 512.0, 0.25, 0.0) if dice.random() < 0.3 else None,
        skipped=dice.choice((None, None, dice.random() < bad)),
        loss_name=dice.choice(("loss", "loss", "loss", "other")),
        held_out_loss=number(1.0, NAN) if dice.random() < 0.1 else None,
    )


@pytest.mark.parametrize("seed", range(16))
def test_all_monitors_know_the_same_as_if_each_was_asked_about_each_reading(seed: int) -> None:
    dice, warning = random.Random(seed), EarlyWarning()
    bad, healthy_again = dice.choice((0.0, 0.02, 0.3)), dice.randrange(400)
    quick, long = numbers(warning, NumericFaults), numbers(warning, LongNumericFaults)
    for step in range(600):
        reading, line = random_reading(dice, step, bad if step < healthy_again else 0.0), Line(step, str(step))
        event = Backoff(1024.0, 512.0) if dice.random() < bad else None
        hint = dice.choice((FaultKind.NAN_LOSS, FaultKind.GRAD_NONFINITE)) if dice.random() < bad / 4 else None
        found = []
        for each in (quick, long):
            each._builder.line = each._builder.number_line = line
            each._builder.step = step
            found.append(each.take(step, reading))
            found[-1] += each.back_off(step, event) if event else []
            found[-1] += each.hint(hint) if hint else []
        assert repr(found[0]) == repr(found[1]), step
    assert stated(quick, warning) == stated(long, warning)


def stated(of: NumericFaults, warning: EarlyWarning) -> str:
    return encode([vars(of)[name] for name in sorted(vars(of)) if name != "_warning"], {"warning": warning})


@pytest.mark.parametrize("seed", range(20))
def test_a_loss_that_is_healthy_by_itself_is_taken_as_one_that_is_looked_behind(seed: int) -> None:
    dice = random.Random(seed)
    quick, long, bad = LossMonitor(), LongLossMonitor(), dice.choice((0.05, 0.5))
    for step in range(300):
        reading = random_reading(dice, step, bad if step % 60 < 30 else 0.0)
        assert quick.see(reading) == long.see(reading)
        assert repr(vars(quick)) == repr(vars(long))


def test_a_healthy_loss_ends_bad_ones_that_were_all_skipped() -> None:
    monitor = LossMonitor()
    assert monitor.see(Reading(loss=NAN, skipped=True, loss_name="loss")) and monitor.pending
    assert not monitor.see(Reading(loss=2.0, loss_name="loss")) and not monitor.pending


def test_a_perplexity_is_read_where_the_unknown_loss_is_known() -> None:
    detector = Detector()
    for step in range(5):
        detector.feed_numbers(Line(step, f"step {step} loss 2.0 ppl 1e9"))
    assert detector._unread.shown_at_end is FaultKind.DIVERGENCE
