"""Gives the early warning: a run diverges for good, while its numbers are still finite.

One spike is no fault: most come back by themselves. What counts is a loss that stays away, or climbs, for `patience`
readings and has lost a good part of what was learned; gradients and skipped steps count beside it. See
docs/early-warning.md for what was measured.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from rung.jobs.spec.recovery_spec import EarlyWarning
from rung.recovery.logs.reading import Reading
from rung.recovery.monitors.cusum import CusumLevel
from rung.recovery.monitors.levels import LR_RAISED
from rung.recovery.monitors.skipped_steps import SkippedStepMonitor

# Losses printed under more names than this are not told apart any more; a run has one or two.
MAX_NAMES = 8
# A rise that is small beside the level itself is nothing, however little was learned since the log began.
LEAST_RISE = 0.1
# Gradient norms go up and down by themselves. Five times the usual counts, and only where the loss too is half proven.
GRAD_NORM_RISE = math.log(5.0)
LOSS_TOO = 0.5
MOST = 700.0  # of a logarithm that has a number
# The learning rate is kept of every 16th reading; one that is higher than four of those ago is being raised.
LR_EVERY = 16
LR_KEPT = 5
# A step count that goes back is a restart where the trouble begins within this many readings of it.
RESTART = 8


@dataclass(frozen=True)
class DivergenceWarning:
    """A run that leaves its course: since which step, at once or little by little, and what shows it."""

    onset: int | None
    shape: str
    description: str


class DivergenceMonitor:
    """Follows loss, gradient norm and skipped steps of a run in bounded memory, and says once when it diverges."""

    def __init__(self, limits: EarlyWarning) -> None:
        self._limits = limits
        self._lrs: deque[float] = deque(maxlen=LR_KEPT)
        self._seen = 0
        self._start_over()

    def _start_over(self) -> None:
        self._losses: dict[str, CusumLevel] = {}
        self._norms = self._new_cusum()
        self._skips = SkippedStepMonitor(self._limits)
        # What is out of hand, once it has been told.
        self._reported: CusumLevel | SkippedStepMonitor | None = None

    def _new_cusum(self) -> CusumLevel:
        return CusumLevel(self._limits.sigmas, self._limits.patience, self._limits.warm_up)

    @property
    def active(self) -> bool:
        """Tell whether what was warned of still goes on."""
        return self._reported is not None

    def see(self, step: int | None, reading: Reading) -> DivergenceWarning | None:
        """Take one reading; return the warning that it completes, if any."""
        self._seen += 1
        if self._seen % LR_EVERY == 0 and reading.lr is not None:
            self._lrs.append(reading.lr)
        cusum = self._take_loss(step, reading) if reading.loss is not None else None
        if reading.skipped is not None or reading.scale is not None:
            self._skips.add(step, reading.scale, reading.skipped, tells_all=reading.is_record)
        if self._reported is not None:
            if self._reported.evidence == 0.0:
                self._reported = None
                for each in self._losses.values():
                    each.held = False
        elif cusum is not None:
            return self._warn(cusum)
        elif self._skips.evidence:
            self._reported = self._skips
            return DivergenceWarning(self._skips.began, "drift", self._skips.description)
        return None

    def _take_loss(self, step: int | None, reading: Reading) -> CusumLevel | None:
        """Take loss and gradient norm; return the loss's course when it is out of hand, or half so with the norm."""
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
        return cusum if (complete and self._is_far(cusum)) or (grown and self._has_grown(cusum)) else None

    def _is_far(self, cusum: CusumLevel) -> bool:
        """Tell whether the loss has lost a good share of what was learned, and not too little beside its level."""
        assert cusum.level is not None and cusum.first is not None
        far = max(self._limits.rise * (cusum.first - cusum.level), LEAST_RISE * abs(cusum.level))
        return cusum.rise() >= far

    def _has_grown(self, cusum: CusumLevel) -> bool:
        """Tell whether the gradients have grown for good while the loss too was leaving its level."""
        return cusum.evidence >= LOSS_TOO * self._limits.patience and self._norms.rise() >= GRAD_NORM_RISE

    def _warn(self, cusum: CusumLevel) -> DivergenceWarning | None:
        # The log of a run that was started again, from scratch or from an older state: its loss is not out of hand.
        if 0 <= cusum.since_restart - cusum.length <= RESTART:
            self._start_over()
            return None
        self._reported = cusum
        cusum.held = True
        # A loss that goes up while the learning rate is raised goes up because of it, however quickly.
        raised = bool(self._lrs) and self._lrs[-1] > LR_RAISED * self._lrs[0]
        jumped = cusum.has_jumped() and not raised
        return DivergenceWarning(cusum.began, "spike" if jumped else "drift", self._describe(cusum))

    def _describe(self, cusum: CusumLevel) -> str:
        since = f"since step {cusum.began}" if cusum.began is not None else f"for {cusum.length} readings"
        if self._is_far(cusum):
            now, before = _about(cusum)
            return f"loss about {now:.4g} {since}, about {before:.4g} before"
        now, before = (math.exp(min(each, MOST)) for each in _about(self._norms))
        return f"loss above its level {since}, and gradient norm about {now:.4g}, about {before:.4g} before"


def _about(cusum: CusumLevel) -> tuple[float, float]:
    """Return where a number stands now and where it stood before."""
    before = cusum.level if cusum.level is not None else math.nan
    return before + cusum.rise(), before
