"""Tests that all monitors know the same of readings that are taken at once as of readings taken one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rung.jobs.model.fault import FaultKind
from rung.jobs.spec.recovery_spec import EarlyWarning
from rung.recovery.detect.candidates import FaultCandidates
from rung.recovery.detect.fault_builder import FaultBuilder
from rung.recovery.detect.numeric_faults import NumericFaults
from rung.recovery.logs.lines import Line
from rung.recovery.logs.reading import Reading, Readings
from rung.recovery.monitors.loss_scale import Backoff
from rung.runner.log_reading.state_codec import encode

HINTS = (FaultKind.NAN_LOSS, FaultKind.GRAD_NONFINITE)


class Run:
    """Makes readings of a training whose numbers are healthy, unless something odd comes with them."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.odd = dice.choice((0.0, 0.0, 0.01, 0.05))
        self.has_norm, self.has_lr, self.has_scale, self.has_term = (dice.random() < 0.6 for _ in range(4))
        self.step, self.scale, self.count = 0, 1024.0, 0
        self.drift, self.begins = dice.choice((0.0, 0.0, 0.02)), dice.randrange(100, 900)
        self.noise, self.level = dice.choice((0.01, 0.3)), dice.choice((2.0, 2.0, -1.0))

    def row(self) -> tuple[float, ...]:
        dice = self.dice
        self.step, self.count = self.step + 1, self.count + 1
        loss = self.level * (1 + 3 / self.count) + dice.gauss(0, self.noise)
        loss += self.drift * max(0, self.count - self.begins)
        loss = dice.choice((1e3, 1e5, 1e8, -5.0)) if dice.random() < self.odd else loss
        norm = dice.choice((0.0, 1e4)) if dice.random() < self.odd else dice.lognormvariate(0, 0.3)
        term = -0.1 if dice.random() < self.odd / 8 else 1.0
        return self.step, loss, 1e-4 * min(1.0, self.count / 200), norm, term

    def readings(self) -> Readings:
        """Return the next ones; their scale is the same in all."""
        dice = self.dice
        if dice.random() < 0.08:
            self.scale *= dice.choice((0.5, 2.0, 2.0, 2.0**-12 if self.odd else 2.0))
        if dice.random() < self.odd:
            self.step = max(0, self.step - dice.choice((1, 2, 40)))
        scale, name = self.scale, dice.choice(("loss",) * 20 + ("other",))

        def read(row: Any) -> Reading:
            step, loss, lr, norm, term = row
            values = {"kd_loss": term} if self.has_term else {}
            return Reading(
                int(step), loss, lr if self.has_lr else None, norm if self.has_norm else None, scale
                if self.has_scale else None, None, values, loss_name=name, loss_terms=tuple(values)
            )  # fmt: skip

        rows = [self.row() for _ in range(dice.choice((1, 3, 20, 70)))]
        steps, losses, lrs, norms, terms = zip(*rows, strict=True)
        columns = (lrs if self.has_lr else None, norms if self.has_norm else None, [terms] if self.has_term else [])
        return Readings(read(rows[0]), read(rows[-1]), steps, losses, *columns, rows, read)


def one_by_one(numbers: NumericFaults, readings: Readings, at: int) -> list[object]:
    found: list[object] = []
    for step, row in zip(readings.steps[at:], readings.rows[at:], strict=True):
        numbers._builder.step, numbers._builder.line = step, Line(step, str(step))
        numbers._builder.number_line = numbers._builder.line
        found += numbers.take(step, readings.read(row))
    return found


def at_once(numbers: NumericFaults, readings: Readings) -> tuple[list[object], int]:
    count = numbers.take_quiet(readings) if numbers.is_quiet(readings) else 0
    if count:
        step = readings.steps[count - 1]
        numbers._builder.step, numbers._builder.line = step, Line(step, str(step))
        numbers._builder.number_line = numbers._builder.line
    return one_by_one(numbers, readings, count), count


def stated(of: NumericFaults, warning: EarlyWarning | None) -> str:
    return encode([vars(of)[name] for name in sorted(vars(of)) if name != "_warning"], {"warning": warning})


def disturb(numbers: NumericFaults, dice: random.Random) -> list[object]:
    """Let words come between the numbers."""
    what = dice.randrange(5)
    if what == 0:
        return [*numbers.back_off(numbers._builder.step, Backoff(1024.0, 512.0))]
    if what == 1:
        return [*numbers.hint(dice.choice(HINTS))]
    if what == 2:
        return [*numbers.say(dice.choice(HINTS), about_one_batch=True)]
    if what == 3:
        numbers._builder.see_replay({"step": str(numbers._builder.step or 0), "fp32": "finite"})
    else:
        numbers.lines_missing()
    return []


LIMITS = (
    *(EarlyWarning(), EarlyWarning(patience=1), None),
    EarlyWarning(patience=4, sigmas=1.0, warm_up=16, rise=0.01),
)


@pytest.mark.parametrize("warning", LIMITS, ids=("usual", "impatient", "none", "narrow"))
@pytest.mark.parametrize("seed", range(16))
def test_readings_at_once_leave_what_readings_one_by_one_leave(seed: int, warning: EarlyWarning | None) -> None:
    run, words = Run(seed), random.Random(seed)
    after = words.choice((0, 0, 150))
    quick, long = (NumericFaults(warning, FaultCandidates(), FaultBuilder(), after) for _ in range(2))
    for turn in range(40):
        readings = run.readings()
        found, _ = at_once(quick, readings)
        assert repr(found) == repr(one_by_one(long, readings, 0))
        # It is long, so that it takes longer than all else here.
        if turn % 8 == 7:
            assert stated(quick, warning) == stated(long, warning), readings.steps[0]
        if run.odd and words.random() < 0.2:
            state = words.getstate()
            found = disturb(quick, words)
            words.setstate(state)
            assert repr(found) == repr(disturb(long, words))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_most_readings_of_a_healthy_training_are_taken_at_once(seed: int) -> None:
    run, numbers = Run(seed), NumericFaults(EarlyWarning(), FaultCandidates(), FaultBuilder())
    run.odd = run.drift = 0.0
    taken = 0
    while run.count < 3000:
        readings = run.readings()
        taken += at_once(numbers, readings)[1]
    assert taken > run.count / 2
