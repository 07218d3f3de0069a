"""Works out which step of the whole run a reading belongs to, where the line does not have it.

Frameworks count over the run, inside an epoch, or not at all: transformers prints its numbers with only the epoch,
between two states of a bar that has the step. The result is None when the step is uncertain.
"""

from __future__ import annotations

import math
import re

from rung.recovery.logs.reading import Reading

# A larger number is not a step, and would not fit into a database integer.
MAX_STEP = 10**15
PLANNED_STEPS = "total_optimization_steps"
PLAN_NAMES = frozenset({"num_train_epochs", PLANNED_STEPS})
# A bar draws at most ten times a second (tqdm's default); below this rate it shows every step.
DRAWS_ALL = 8.0
# Epochs that begin again go back so far at least: ranks that print for themselves can be one apart.
BACK = 2
_EPOCH = re.compile(r"\bepoch\W{0,3}([0-9]{1,9})\b(?![.,][0-9])", re.IGNORECASE)


class EpochCount:
    """Converts a count that restarts every epoch into a step of the whole run."""

    def __init__(self) -> None:
        self._base: int | None = None
        self._heading: float | None = None
        self._epoch: float | None = None
        self._done = 0
        self._before = 0  # steps of the finished epochs, where their length is not printed
        self._passed_middle = False

    def heading(self, epoch: float) -> None:
        """Take an epoch from a line of its own above its bars (`Epoch 3/10`)."""
        self._heading = epoch

    def overall(self, reading: Reading, resumed: int | None) -> int:
        """Return the step of the whole run."""
        done, total = reading.step or 0, reading.total
        epoch = self._heading if reading.epoch is None and reading.in_epoch else reading.epoch
        if total is not None and epoch is not None and reading.in_epoch:
            self._epoch, self._done = epoch, done
            first = reading.first_epoch
            before = epoch - (self._first(epoch, total, done, resumed) if first is None else first)
            return max(0, int(before)) * total + done
        return self._count(epoch, total, done)

    def before(self, epoch: float) -> int | None:
        """Return the steps of the epochs before this one, if it is the one of the reading before; None: it is not."""
        return self._before if epoch == self._epoch else None

    def see(self, epoch: float, done: int) -> None:
        """Take readings of the same epoch, without a total, up to this step."""
        self._passed_middle = True
        self._epoch, self._done = epoch, done

    def _first(self, epoch: float, total: int, done: int, resumed: int | None) -> int:
        """Return the number of the first epoch: 0 or 1."""
        if epoch == 0:
            self._base = 0
        if self._base is None:
            if resumed is not None:
                # The number that puts this reading after the step the run resumed at.
                self._base = 1 if (epoch - 1) * total + done > resumed else 0
            else:
                self._base = 1
        return self._base

    def _count(self, epoch: float | None, total: int | None, done: int) -> int:
        """Count epochs by the restarts of a count; bars of several ranks must not look like a restart."""
        if epoch is not None and self._epoch is not None:
            restarted = done <= self._done and epoch > self._epoch
        else:
            restarted = done < self._done and self._passed_middle and done <= (total or self._done) * 0.2 + 1
        if restarted:
            self._before += total or self._done
            self._passed_middle = False
        if total is None or total < 20 or 0.2 * total <= done <= 0.8 * total:
            self._passed_middle = True
        self._epoch, self._done = epoch, done
        return self._before + done


class EpochStepEstimator:
    """Estimates the steps of an epoch from a bar, and from that the step of numbers that have only an epoch."""

    def __init__(self) -> None:
        # Bounds of the steps per epoch, as narrow as the rounded epochs allow.
        self._low, self._high = 0.0, math.inf
        self._waiting: float | None = None
        self._last: int | None = None
        self._interval: int | None = None
        self._bar: Reading | None = None
        self._plan: dict[str, float] = {}
        # True when epochs have four digits (transformers 5) instead of two decimals.
        self._four_digits = False

    def plan(self, name: str, value: float) -> None:
        """Take a number about the length of the run, printed before its first step."""
        self._plan[name] = value
        epochs, steps = self._plan.get("num_train_epochs"), self._plan.get(PLANNED_STEPS)
        if epochs and steps:
            self._low = self._high = steps / epochs

    def see_bar(self, bar: Reading) -> None:
        """Take a state of the bar; the one right after some numbers has their step."""
        self._bar = bar
        epoch, self._waiting = self._waiting, None
        if epoch is None or bar.step is None or epoch <= 0:
            return
        margin = self._rounding(epoch)
        low, high = bar.step / (epoch + margin), bar.step / max(epoch - margin, 1e-9)
        if low > self._high or high < self._low:
            # Buffered output: these numbers and this bar do not belong together.
            self._low, self._high, self._interval = 0.0, math.inf, None
            return
        self._low, self._high = max(self._low, low), min(self._high, high)
        self._follow(bar.step)

    def _follow(self, step: int) -> None:
        if self._last is not None and step > self._last:
            gap = step - self._last
            self._interval = gap if self._interval is None else math.gcd(gap, self._interval)
        self._last = step

    def step_at(self, epoch: float) -> int | None:
        """Return the step of numbers that have only an epoch, or None when it is uncertain."""
        fresh, self._bar = self._bar, None
        if self._waiting is not None:
            fresh = None  # two lines of numbers in a row: the bar belongs to the first
        self._waiting = epoch
        step = self._by_epoch(epoch, fresh)
        if step is None and fresh is not None and _shows_all(fresh):
            step = fresh.step
        return step

    def _by_epoch(self, epoch: float, bar: Reading | None) -> int | None:
        if math.isinf(self._high):
            return None
        margin = self._rounding(epoch)
        first = math.ceil((epoch - margin) * self._low - 1e-6)
        last = math.floor((epoch + margin) * self._high + 1e-6)
        if bar is not None:
            first = max(first, bar.step or 0)
            last = min(last, bar.total or last)
        if first > last or last >= MAX_STEP:
            return None
        if self._interval and self._last is not None:
            first += (self._last - first) % self._interval
            return first if first <= last < first + self._interval else None
        return first if first == last else None

    def _rounding(self, epoch: float) -> float:
        """Return the largest rounding error of a printed epoch."""
        decimals = len(repr(epoch).partition(".")[2])
        self._four_digits = self._four_digits or decimals > 2
        digits = 3 - math.floor(math.log10(epoch)) if epoch > 0 else 2
        return float(0.5 * 10.0 ** -(digits if self._four_digits else min(max(2, decimals), digits)))


def _shows_all(bar: Reading) -> bool:
    """Return whether a bar is slow enough to be drawn at every step."""
    rate = bar.throughput.get("it/s")
    return "s/it" in bar.throughput or (rate is not None and rate < DRAWS_ALL)


class EpochsBeginAgain:
    """Sees that the epochs begin again: the next fold of a cross-validation, or the next run of a sweep, in one log."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._newest = 0

    def begin_again(self, text: str) -> bool:
        """Take a line with a loss; return whether its epoch is the first one again, after later ones."""
        found = _EPOCH.search(text)
        if found is None:
            return False
        epoch = int(found[1])
        if self._first is None:
            self._first = epoch
        # A log that begins in the middle of a run has not shown the number of the first one.
        again = epoch <= max(self._first, 1) and self._newest - epoch >= BACK
        self._newest = epoch
        return again
