"""Defines `Reading`: the numbers that one line of a log reports, and `Readings`: those of many lines that are alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from rung.jobs.model.saturation import Saturation

_NO_NUMBERS: Mapping[str, float] = MappingProxyType({})
_NO_OBJECTS: Mapping[str, object] = MappingProxyType({})
_NO_TEXTS: Mapping[str, str] = MappingProxyType({})


class Reading(NamedTuple):
    """The numbers of one line. One is made per line, and a named tuple is four times as fast as a dataclass."""

    step: int | None = None
    loss: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    scale: float | None = None
    skipped: bool | None = None
    values: Mapping[str, float] = _NO_NUMBERS
    effective: Mapping[str, object] = _NO_OBJECTS
    resumed_step: int | None = None
    saved_step: int | None = None
    is_record: bool = False
    loss_name: str = ""
    # A loss on held-out data; it is never used as the training loss.
    held_out_loss: float | None = None
    # The total of a progress bar: 3000 in 12/3000.
    total: int | None = None
    # As printed: some frameworks count from 0, some from 1, some in fractions.
    epoch: float | None = None
    # The step counts inside the epoch and restarts with the next one.
    in_epoch: bool = False
    # The number of the first epoch, 0 or 1, where the format defines it.
    first_epoch: int | None = None
    # The numbers have an epoch and no step; the bar with their step comes after them (transformers).
    step_is_late: bool = False
    # Names in `values` that are terms of the loss: kd, ce, loss_cls.
    loss_terms: tuple[str, ...] = ()
    # Speed by unit: it/s, s/it, ms/it, samples/s, tokens/s.
    throughput: Mapping[str, float] = _NO_NUMBERS
    # The file that `saved_step` was written to, as the job recorded it.
    saved_file: str | None = None
    # From inside: "" when Rung can set the knobs there, and why not otherwise; None when the line does not say.
    hands: str | None = None
    # The updates that a process of the job had made at its end.
    updates: int | None = None
    # The number of the course that begins with this line: another model, or another optimizer.
    course: int | None = None
    # How often numbers that left a place in FP32 did not fit FP16, up to now.
    saturation: Saturation | None = None
    # What of a checkpoint that Rung itself saved could not be brought back.
    not_whole: str | None = None
    # The fields of a replay of the failing step.
    replay: Mapping[str, str] = _NO_TEXTS

    # The loss has only the name of its function, such as rmse, which can be that of a score too.
    is_loss_by_function: bool = False
    # The name and value of a loss scale that is the only number of its line; it may be a setting.
    lone_scale: tuple[str, float] | None = None

    @property
    def has_bad_number(self) -> bool:
        """Return whether the loss or the gradient norm is not finite."""
        return any(value is not None and not math.isfinite(value) for value in (self.loss, self.grad_norm))


class Readings(NamedTuple):
    """The readings of lines in a row that differ only in finite numbers, as columns; None: they have no such number.

    The steps only go up, and scale and epoch are the same in all of them.
    """

    first: Reading
    last: Reading
    steps: Sequence[int]
    losses: Sequence[float]
    lrs: Sequence[float] | None
    norms: Sequence[float] | None
    # The terms of the loss, one column each.
    terms: Sequence[Sequence[float]]
    # The numbers of each line as it has them, and what makes a reading of them.
    rows: Sequence[tuple[float, ...]]
    read: Callable[[Sequence[float]], Reading]

    def up_to(self, count: int) -> Readings:
        """Return the first of these readings."""
        if count == len(self.steps):
            return self
        return self._replace(
            last=self.read(self.rows[count - 1]),
            steps=self.steps[:count],
            losses=self.losses[:count],
            lrs=self.lrs and self.lrs[:count],
            norms=self.norms and self.norms[:count],
            terms=[term[:count] for term in self.terms],
            rows=self.rows[:count],
        )
