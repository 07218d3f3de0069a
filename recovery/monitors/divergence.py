"""Gives an early warning when a run diverges while its numbers are still finite.

One spike is not a fault: most runs recover. A fault is a loss that stays high, or rises, for `patience` readings
and has lost much of what was learned. Gradients and skipped steps count too. docs/early-warning.md has measurements.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from rung.jobs.spec.recovery_spec import EarlyWarning
from rung.recovery.logs.reading import Reading, Readings
from rung.recovery.monitors.cusum import CusumLevel
from rung.recovery.monitors.levels import LR_RAISED, SMALL
from rung.recovery.monitors.skipped_steps import SkippedStepMonitor

# Losses under more names than this are not followed; a run has one or two.
MAX_NAMES = 8
# A rise below this share of the level does not count, however little was learned since the log began.
LEAST_RISE = 0.1
# A loss that swings around zero has left its range at this multiple of the swing of its first readings: in tests/bench
# healthy ones stay within 5 times, and one that is ruined reaches 200 times.
BEYOND = 50.0
# Gradient norms vary by themselves. Five times the level counts, and only with half of the evidence for the loss.
GRAD_NORM_RISE = math.log(5.0)
LOSS_TOO = 0.5
MOST = 700.0  # the largest x for which exp(x) is a float
# The learning rate of every 16th reading is kept; it is rising when it is higher than four of those ago.
LR_EVERY = 16
LR_KEPT = 5
# When the step went back and the loss rose within this many readings, the cause is a restart.
RESTART = 8


@dataclass(frozen=True)
class DivergenceWarning:
    """A run that diverges: since which step, as a spike or a drift, and the numbers that show it."""

    onset: int | None
    shape: str
    description: str


class DivergenceMonitor:
    """Follows loss, gradient norm and skipped steps of a run in bounded memory, and reports once when it diverges."""

    def __init__(self, limits: EarlyWarning) -> None:
        self._limits = limits
        self._lrs: deque[float] = deque(maxlen=LR_KEPT)
        self._seen = 0
        self._is_clipped = False
        self._start_over()

    def _start_over(self) -> None:
        self._losses: dict[str, CusumLevel] = {}
        self._norms = self._new_cusum()
        self._skips = SkippedStepMonitor(self._limits)
        # What the warning was about, until it is over.
        self._reported: CusumLevel | SkippedStepMonitor | None = None

    def _new_cusum(self) -> CusumLevel:
        return CusumLevel(self._limits.sigmas, self._limits.patience, self._limits.warm_up)

    @property
    def active(self) -> bool:
        """Return whether the reported divergence still goes on."""
        return self._reported is not None

    def lines_missing(self) -> None:
        """Count anew what must come in a row, unless it is reported: readings are missing here."""
        for cusum in (self._norms, *self._losses.values()):
            cusum.lines_missing()
        if self._reported is not self._skips:
            self._skips.lines_missing()

    def see(self, step: int | None, reading: Reading) -> DivergenceWarning | None:
        """Take one reading; return the warning that it completes, if any."""
        self._seen += 1
        if reading.effective:
            self._is_clipped = reading.effective.get("clip") is not None
        if self._seen % LR_EVERY == 0 and reading.lr is not None:
            self._lrs.append(reading.lr)
        cusum = self._take_loss(step, reading) if reading.loss is not None else None
        if reading.skipped is not None or reading.scale is not None:
            self._skips.add(step, reading.scale, reading.skipped, reports_all_skips=reading.is_record)
        if self._reported is not None:
            if self._reported.evidence == 0.0:
                self._reported = None
                for each in self._losses.values():
                    each.held = False
        elif cusum is not None:
            return self._warn(cusum)
        elif self._skips.evidence:
            return self._warn_of_skips()
        return None

    def is_quiet(self, readings: Readings) -> bool:
        """Return whether only losses and norms decide what these readings mean, as `see_quiet` takes them."""
        first = readings.first
        cusum = self._losses.get(first.loss_name)
        if self._reported is not None or cusum is None or readings.steps[0] <= cusum.step:
            return False
        if readings.norms is not None and min(readings.norms) <= 0.0:
            return False
        return not _has_scale(first) or self._skips.is_quiet(first.scale)

    def see_quiet(self, readings: Readings) -> int:
        """Take quiet readings, as long as they cannot complete the evidence; return how many that are."""
        count = self._see_levels(readings)
        if readings.lrs is not None:
            self._lrs.extend(readings.lrs[-(self._seen + 1) % LR_EVERY : count : LR_EVERY])
        self._seen += count
        if count and _has_scale(readings.first):
            self._skips.add_quiet(count, readings.steps[count - 1])
        return count

    def _see_levels(self, readings: Readings) -> int:
        """Take losses and norms as long as neither level can be left for good; return how many."""
        cusum, steps, losses = self._losses[readings.first.loss_name], readings.steps, readings.losses
        logs = [*map(math.log, readings.norms)] if readings.norms is not None else None
        norms, at = self._norms, 0
        while at < len(steps):
            size = cusum.quiet_part(losses, at)
            # Together with the norm, a loss is enough that has less evidence.
            size = min(size, norms.quiet_part(logs, at)) if logs is not None else size
            if not size:
                break
            end = at + size
            cusum.add_many(steps[at:end], losses[at:end])
            if logs is not None:
                norms.add_many(steps[at:end], logs[at:end])
            at = end
        return at

    def _warn_of_skips(self) -> DivergenceWarning | None:
        """Return the warning of steps that the scaler skipped.

        Single ones in a run whose loss and gradients stay at their level are batches with enormous gradients: a spike,
        or nothing at all where a clip bounds what such a batch can do.
        """
        enough = LOSS_TOO * self._limits.patience
        rising = any(cusum.evidence >= enough for cusum in (self._norms, *self._losses.values()))
        single = self._skips.is_isolated and not rising
        if single and self._is_clipped:
            return None
        self._reported = self._skips
        return DivergenceWarning(self._skips.began, "spike" if single else "drift", self._skips.description)

    def _take_loss(self, step: int | None, reading: Reading) -> CusumLevel | None:
        """Take loss and gradient norm; return the level of the loss when it diverges by itself or with the norm."""
        loss, norm = reading.loss, reading.grad_norm
        if loss is None or not -math.inf < loss < math.inf:
            return None
        cusum = self._losses.get(reading.loss_name)
        if cusum is None:
            if len(self._losses) >= MAX_NAMES:
                return None
            cusum = self._losses[reading.loss_name] = self._new_cusum()
        elif reading.step is not None and step == cusum.step:
            return None  # a bar drawn again, or another rank
        complete = cusum.add(step, loss)
        grown = norm is not None and 0.0 < norm < math.inf and self._norms.add(step, math.log(norm))
        with_norm = grown and self._gradients_grew(cusum)
        if not (with_norm or (complete and self._is_far(cusum))):
            return None
        # A jump that falls again is the script's own doing, such as harder data: the run learns.
        if cusum.trend() < 0:
            cusum.learn_again()
            return None
        return None if cusum.may_fall_again() and not with_norm else cusum

    def _is_far(self, cusum: CusumLevel) -> bool:
        """Return whether the loss lost a large share of what was learned, and rose enough compared with its level."""
        assert cusum.level is not None and cusum.first is not None
        far = max(self._limits.rise * (cusum.first - cusum.level), LEAST_RISE * abs(cusum.level))
        # A loss that swings around zero and has not fallen by half of its swing may rise by design, as a policy's does.
        by_design = cusum.around_zero and cusum.first - cusum.level < cusum.swing / 2
        return cusum.rise() >= (BEYOND * max(cusum.swing, SMALL) if by_design else far)

    def _gradients_grew(self, cusum: CusumLevel) -> bool:
        """Return whether the gradients have grown while the loss was leaving its level."""
        return cusum.evidence >= LOSS_TOO * self._limits.patience and self._norms.rise() >= GRAD_NORM_RISE

    def _warn(self, cusum: CusumLevel) -> DivergenceWarning | None:
        # The run was restarted, from scratch or from an older checkpoint: its loss is higher for that reason.
        if 0 <= cusum.since_restart - cusum.length <= RESTART:
            self._start_over()
            return None
        self._reported = cusum
        cusum.held = True
        # While the learning rate is rising, it is the cause, however quickly the loss rises.
        raised = bool(self._lrs) and self._lrs[-1] > LR_RAISED * self._lrs[0]
        jumped = cusum.has_jumped() and not raised
        return DivergenceWarning(cusum.began, "spike" if jumped else "drift", self._describe(cusum))

    def _describe(self, cusum: CusumLevel) -> str:
        since = f"since step {cusum.began}" if cusum.began is not None else f"for {cusum.length} readings"
        if self._is_far(cusum):
            now, before = _now_and_before(cusum)
            return f"loss about {now:.4g} {since}, about {before:.4g} before"
        now, before = (math.exp(min(each, MOST)) for each in _now_and_before(self._norms))
        return f"loss above its level {since}, and gradient norm about {now:.4g}, about {before:.4g} before"


def _now_and_before(cusum: CusumLevel) -> tuple[float, float]:
    """Return the current value of a number and its level before."""
    before = cusum.level if cusum.level is not None else math.nan
    return before + cusum.rise(), before


def _has_scale(reading: Reading) -> bool:
    return reading.skipped is not None or reading.scale is not None
