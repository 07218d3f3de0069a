"""Keeps the loss of a run in bounded memory and judges whether a relaunched run is learning again.

A run without NaN whose loss no longer falls has not recovered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from rung.recovery.monitors.levels import WRECKED

# A rung is judged over max(300, 3 x time to fault) steps: shorter windows accepted runs that had unlearned by step
# 3000 (clip 1.0 against too high an lr).
MIN_WINDOW = 300
WINDOW_FACTOR = 3
# Fewer readings than this do not show a trend.
MIN_READINGS = 12
# This many readings at the level of the untrained model are more than a slow start, whenever the run ends.
ENOUGH = 60
# A fault up to this step is an early one.
EARLY = 1000
# A run that stays at or below this share of its untrained loss has learned and converged.
CONVERGED = 0.75
# Some losses can fall only a little (a text has its entropy). A fall of this share and of this many times the noise
# since the beginning is enough.
FELL, NOISES = 0.05, 10.0
# The first steps of a run, as a share of it: a loss that falls only there has stopped at once.
FIRST_SHARE = 0.05
# A run that ends below half of its untrained loss has learned, however flat it is by then.
MOSTLY_LEARNED = 0.5
# Two medians of a noisy loss within 2 % of each other are the same level.
SAME_LEVEL = 0.02


class Verdict(StrEnum):
    LEARNING = "learning"
    # It neither falls nor is it worse than before: whether it learns is not known.
    LEVEL = "level"
    NOT_LEARNING = "not_learning"
    TOO_EARLY = "too_early"


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    because: str


class LossHistory:
    """Keeps the loss of a run of any length in bounded memory: when it is full, every other reading is dropped."""

    def __init__(self, capacity: int = 2048) -> None:
        self._capacity = capacity
        self._stride = 1
        self._seen = 0
        self._readings: list[tuple[int, float]] = []
        self.first_loss: float | None = None
        self._highest_lr = 0.0
        # The last step at which the lr was higher than ever, as in a warm-up; 0: no lr was seen to rise.
        self.lr_rose_at = 0

    def add(self, step: int, loss: float, lr: float | None = None) -> None:
        if lr is not None and lr > self._highest_lr:
            self.lr_rose_at, self._highest_lr = step, lr
        if not -math.inf < loss < math.inf:
            return
        if self.first_loss is None:
            self.first_loss = loss
        if self._seen % self._stride == 0:
            self._readings.append((step, loss))
        self._seen += 1
        if len(self._readings) >= self._capacity:
            self._readings = self._readings[::2]
            self._stride *= 2

    def add_many(self, steps: Sequence[int], losses: Sequence[float], lrs: Sequence[float] | None) -> None:
        """Take finite losses in a row, with their lrs, if they have one."""
        highest, kept = max(lrs, default=0.0) if lrs is not None else 0.0, -self._seen % self._stride
        # An lr that rises is seen step by step, and so is a list that becomes full.
        if highest > self._highest_lr or len(self._readings) + len(losses) >= self._capacity or not self._seen:
            for place, loss in enumerate(losses):
                self.add(steps[place], loss, lrs[place] if lrs is not None else None)
            return
        self._readings.extend(zip(steps[kept :: self._stride], losses[kept :: self._stride], strict=True))
        self._seen += len(losses)

    @property
    def count(self) -> int:
        """Return how many readings there were."""
        return self._seen

    def between(self, first: int, last: int) -> list[float]:
        """Return the losses at first <= step < last."""
        return [loss for step, loss in self._readings if first <= step < last]

    def readings(self, first: int, last: int) -> list[tuple[int, float]]:
        """Return step and loss of the readings at first <= step <= last."""
        return [(step, loss) for step, loss in self._readings if first <= step <= last]

    @property
    def last_step(self) -> int | None:
        return self._readings[-1][0] if self._readings else None


def healthy_level(history: LossHistory, began: int) -> float | None:
    """Return the level of the loss shortly before the fault began at step `began`.

    None when the loss was rising all the time: such a run has no healthy level.
    """
    before = history.between(0, began)
    if len(before) < MIN_READINGS:
        return None
    start, level = median(before[: len(before) // 3]), median(before[-MIN_READINGS:])
    margin = max(SAME_LEVEL * abs(start), 2 * spread_of(before) / math.sqrt(MIN_READINGS))
    return level if level <= start + margin else None


def was_falling(history: LossHistory, until: int, since: int = 0) -> bool | None:
    """Return whether the loss still fell in the second half of some steps; None: too few readings."""
    before = history.between((since + until) // 2, until)
    if len(before) < MIN_READINGS:
        return None
    third = len(before) // 3
    early, late = median(before[:third]), median(before[-third:])
    return late < early - max(SAME_LEVEL * abs(early), 2 * spread_of(before[-third:]) / math.sqrt(third))


def window_after(fault_step: int, steps_to_fault: int) -> int:
    """Return the step at which a run that got past `fault_step` can be judged."""
    return fault_step + max(MIN_WINDOW, WINDOW_FACTOR * steps_to_fault)


@dataclass(frozen=True)
class LearningBaseline:
    """What a relaunched run is compared with: where the fault was, when to judge, and the levels of the loss before."""

    fault_step: int
    window_end: int
    healthy: float | None
    untrained: float | None
    # The loss at the end of the best trial: a run that stays above it has not recovered.
    best_trial: float | None = None


def judge(history: LossHistory, baseline: LearningBaseline, *, ended: bool) -> Judgement:
    """Return whether a relaunched run has been learning since the fault."""
    fault_step, window_end, last = baseline.fault_step, baseline.window_end, history.last_step
    if last is None and ended:
        return Judgement(Verdict.TOO_EARLY, "the last attempt printed no loss, so that nothing more is known")
    if last is None or (last < window_end and not ended):
        return Judgement(Verdict.TOO_EARLY, f"judged at step {window_end}")
    last = last if ended else _enough_at(history, fault_step, window_end)
    losses = history.between(fault_step, last + 1)
    if len(losses) < MIN_READINGS:
        return Judgement(Verdict.TOO_EARLY, f"only {len(losses)} readings since step {fault_step}")
    trend = _trend(losses, f"steps {fault_step} to {last}")
    found = _ruined_or_falling(trend, baseline) or _still_untrained(trend, baseline) or _no_worse(trend, baseline)
    if found is not None:
        return found
    if last < window_end:
        return Judgement(Verdict.TOO_EARLY, f"the run ended at step {last}, before it could be judged at {window_end}")
    return _level_or_not_learning(trend, baseline, history.first_loss)


def _enough_at(history: LossHistory, fault_step: int, window_end: int) -> int:
    """Return the first step at which a run can be judged, so that it does not matter how fast its log is read."""
    steps = [step for step, _ in history.readings(fault_step, history.last_step or 0)]
    enough = steps[MIN_READINGS - 1] if len(steps) >= MIN_READINGS else window_end
    return next((step for step in steps if step >= max(window_end, enough)), window_end)


@dataclass(frozen=True)
class _Trend:
    """The level of the loss in the first and in the last third of some readings, and how much of it is noise."""

    early: float
    late: float
    spread: float
    margin: float
    count: int
    span: str


def _trend(losses: list[float], span: str) -> _Trend:
    third = len(losses) // 3
    spread = spread_of(losses[-third:])
    return _Trend(
        median(losses[:third]), median(losses[-third:]), spread, 2 * spread / math.sqrt(third), len(losses), span
    )


def _ruined_or_falling(trend: _Trend, baseline: LearningBaseline) -> Judgement | None:
    late, untrained, best = trend.late, baseline.untrained, baseline.best_trial
    if untrained is not None and late > WRECKED * abs(untrained):
        because = f"the loss is {late:.4g} over {trend.span}, {untrained:.4g} when it began"
        return Judgement(Verdict.NOT_LEARNING, because)
    if late >= trend.early - max(SAME_LEVEL * abs(trend.early), trend.margin):
        return None
    fell = f"the loss fell from {trend.early:.4g} to {late:.4g} over {trend.span}"
    if best is not None and late > best + max(SAME_LEVEL * abs(best), trend.margin):
        return Judgement(Verdict.LEVEL, f"{fell}, and is above the {best:.4g} of the best trial")
    if untrained is not None and late > untrained:
        return Judgement(Verdict.LEVEL, f"{fell}, and is above the {untrained:.4g} it began with")
    if untrained is None and baseline.healthy is None:
        # A ruined run falls too. Without a level to hold it against, nobody knows.
        return Judgement(Verdict.LEVEL, f"{fell}; neither its untrained loss nor its level before the fault was seen")
    return Judgement(Verdict.LEARNING, fell)


def _still_untrained(trend: _Trend, baseline: LearningBaseline) -> Judgement | None:
    late, untrained = trend.late, baseline.untrained
    # Before an early fault the run may have learned nothing yet.
    doubtful = baseline.healthy is None or baseline.fault_step <= EARLY
    if untrained is None or not doubtful or trend.count < ENOUGH:
        return None
    if late < untrained - max(SAME_LEVEL * abs(untrained), trend.margin):
        return None
    because = f"the loss is {late:.4g} over {trend.span}, no better than the {untrained:.4g} it began with"
    return Judgement(Verdict.NOT_LEARNING, because)


def _no_worse(trend: _Trend, baseline: LearningBaseline) -> Judgement | None:
    late, healthy, best = trend.late, baseline.healthy, baseline.best_trial
    noise = 2 * trend.spread / math.sqrt(MIN_READINGS)
    if healthy is not None and late <= healthy + max(SAME_LEVEL * abs(healthy), noise):
        because = f"the loss is at {late:.4g} over {trend.span}, no worse than {healthy:.4g} before the fault"
        return Judgement(Verdict.LEVEL, because)
    if best is not None and late <= best + max(SAME_LEVEL * abs(best), noise):
        because = f"the loss is at {late:.4g} over {trend.span}, no worse than {best:.4g} at the end of the best trial"
        return Judgement(Verdict.LEVEL, because)
    return None


def _level_or_not_learning(trend: _Trend, baseline: LearningBaseline, first: float | None) -> Judgement:
    late, healthy = trend.late, baseline.healthy
    began = baseline.untrained if baseline.untrained is not None else first
    if healthy is None and began is not None:
        fallen = late <= min(began - _required_fall(began, trend.spread), trend.early + 2 * trend.margin)
        if fallen:
            return Judgement(
                Verdict.LEVEL, f"the loss stays at {late:.4g} over {trend.span}, {began:.4g} when it began"
            )
    was = f", {healthy:.4g} before the fault" if healthy is not None else ""
    because = f"the loss no longer falls: {trend.early:.4g} to {late:.4g} over {trend.span}{was}"
    return Judgement(Verdict.NOT_LEARNING, because)


def never_learned(history: LossHistory, untrained: float | None) -> Judgement | None:
    """Return how a run without a fault shows that it never learned; None: it did, or too little was seen."""
    losses, last = history.between(0, (history.last_step or 0) + 1), history.last_step
    if last is None or len(losses) < ENOUGH:
        return None
    third = len(losses) // 3
    late, spread = median(losses[-third:]), spread_of(losses[-third:])
    margin = 2 * spread / math.sqrt(third)
    if 2 * spread >= abs(late):
        return None  # a loss around zero, as that of a policy, has no level
    if untrained is not None and late >= untrained - max(SAME_LEVEL * abs(untrained), margin):
        because = f"the loss is {late:.4g} at step {last}, no better than the {untrained:.4g} it began with"
        return Judgement(Verdict.NOT_LEARNING, because)
    first, early = _after_first_steps(history, last, third)
    if untrained is not None and late < MOSTLY_LEARNED * untrained:
        return None
    if abs(late - early) <= max(SAME_LEVEL * abs(early), margin):
        because = f"the loss has been flat since step {first}: {early:.4g} then, {late:.4g} at step {last}"
        return Judgement(Verdict.NOT_LEARNING, because)
    return None


def _after_first_steps(history: LossHistory, last: int, third: int) -> tuple[int, float]:
    """Return the end of the first steps of a run, and the level of the loss after them."""
    rest = history.readings(round(last * FIRST_SHARE), last)
    return rest[0][0], median(loss for _, loss in rest[:third])


def _required_fall(began: float, spread: float) -> float:
    """Return how far a loss must have fallen since the beginning to count as learned."""
    return min((1 - CONVERGED) * abs(began), max(FELL * abs(began), NOISES * spread))


def spread_of(losses: list[float]) -> float:
    """Return the spread of a noisy loss, as a standard deviation that outliers do not change (1.4826 x MAD)."""
    middle = median(losses)
    return 1.4826 * median(abs(loss - middle) for loss in losses)
