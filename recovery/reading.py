"""Owns the noun `Reading`: the numbers that one line of a log reports."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_NOTHING: Mapping[str, float] = MappingProxyType({})
_UNSAID: Mapping[str, object] = MappingProxyType({})


class Reading(NamedTuple):
    """The numbers of one line. A named tuple and no dataclass: one is made per line, and this is four times as fast."""

    step: int | None = None
    loss: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    scale: float | None = None
    skipped: bool | None = None
    values: Mapping[str, float] = _NOTHING
    effective: Mapping[str, object] = _UNSAID
    resumed_step: int | None = None
    saved_step: int | None = None
    is_record: bool = False
    loss_name: str = ""
    # A loss on held-out data; it never stands in for the training loss.
    held_out_loss: float | None = None
    # What a progress bar counts up to (12/3000).
    total: int | None = None
