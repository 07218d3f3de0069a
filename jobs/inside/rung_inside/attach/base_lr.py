"""Owns the learning rate of a live optimizer: setting its base under any scheduler, and reading the base back.

The base lr is that of the first parameter group before a schedule bends it. Touches plain attributes, needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# What a group's entries of these names hold is a learning rate: OneCycleLR and CyclicLR keep theirs in the groups.
GROUP_KEYS = ("lr", "initial_lr", "max_lr", "min_lr")
SCHEDULER_LISTS = ("base_lrs", "_last_lr", "max_lrs")


def set_base_lr(optimizer: Any, scheduler: Any, asked: float) -> None:
    """Make `asked` the base lr; other groups keep their ratio to the first and the schedule keeps its shape."""
    groups = optimizer.param_groups
    if scheduler is not None:
        for group in groups:
            # A scheduler without a base of its own (ReduceLROnPlateau), or a checkpoint from before the scheduler.
            group.setdefault("initial_lr", float(group["lr"]))
    first = _group_base(groups[0])
    for group in groups:
        for key in GROUP_KEYS:
            if key in group:
                _put(group, key, _moved(float(group[key]), first, asked))
    for part in _parts(scheduler):
        _move_scheduler(part, asked)


def base_lr(optimizer: Any, scheduler: Any = None) -> float:
    """Return the base lr in force, or the bare lr where something else than the schedule has set it."""
    group = optimizer.param_groups[0]
    last = getattr(scheduler, "_last_lr", None)
    if last and abs(float(last[0]) - float(group["lr"])) > 1e-9 * abs(float(group["lr"])):
        return float(group["lr"])
    return _group_base(group)


def _group_base(group: Any) -> float:
    return float(group.get("initial_lr", group["lr"]))


def _moved(value: float, first: float, asked: float) -> float:
    """Return `value` scaled as `first` must be to become `asked`, exactly so for the first group itself."""
    return asked if first in (value, 0) else value / first * asked


def _put(group: Any, key: str, value: float) -> None:
    # A capturable optimizer keeps its lr as a tensor that graphs hold on to.
    if hasattr(group[key], "fill_"):
        group[key].fill_(value)
    else:
        group[key] = value


def _parts(scheduler: Any) -> Iterator[Any]:
    """Yield a scheduler and those it is made of (SequentialLR, ChainedScheduler)."""
    if scheduler is not None:
        yield scheduler
        for part in getattr(scheduler, "_schedulers", ()):
            yield from _parts(part)


def _move_scheduler(scheduler: Any, asked: float) -> None:
    bases = getattr(scheduler, "base_lrs", None)
    if not bases:
        return
    first = float(bases[0])
    for name in SCHEDULER_LISTS:
        values = getattr(scheduler, name, None)
        if isinstance(values, list):
            setattr(scheduler, name, [_moved(float(value), first, asked) for value in values])
