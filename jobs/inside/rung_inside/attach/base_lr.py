"""Sets and reads the base learning rate of a live optimizer, under any scheduler.

The base lr is that of the first parameter group before the schedule changes it. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Entries of a group that hold a learning rate; OneCycleLR and CyclicLR keep theirs there.
GROUP_KEYS = ("lr", "initial_lr", "max_lr", "min_lr")
SCHEDULER_LISTS = ("base_lrs", "_last_lr", "max_lrs")


def set_base_lr(optimizer: Any, scheduler: Any, asked: float) -> None:
    """Make `asked` the base lr; other groups keep their ratio to the first and the schedule keeps its shape."""
    groups = optimizer.param_groups
    if scheduler is not None:
        for group in groups:
            # A scheduler that sets no base (ReduceLROnPlateau), or a checkpoint from before the scheduler.
            group.setdefault("initial_lr", float(group["lr"]))
    first = _group_base(groups[0])
    for group in groups:
        for key in GROUP_KEYS:
            if key in group:
                _set(group, key, _scaled(float(group[key]), first, asked))
    for part in _parts(scheduler):
        _scale_scheduler(part, asked)


def base_lr(optimizer: Any, scheduler: Any = None) -> float:
    """Return the base lr in force, or the plain lr if something other than the schedule has set it."""
    group = optimizer.param_groups[0]
    last = getattr(scheduler, "_last_lr", None)
    if last and abs(float(last[0]) - float(group["lr"])) > 1e-9 * abs(float(group["lr"])):
        return float(group["lr"])
    return _group_base(group)


def _group_base(group: Any) -> float:
    return float(group.get("initial_lr", group["lr"]))


def _scaled(value: float, first: float, asked: float) -> float:
    """Return `value` scaled by asked / first; exactly `asked` for the first group."""
    return asked if first in (value, 0) else value / first * asked


def _set(group: Any, key: str, value: float) -> None:
    # A capturable optimizer keeps its lr in a tensor that CUDA graphs refer to.
    if hasattr(group[key], "fill_"):
        group[key].fill_(value)
    else:
        group[key] = value


def _parts(scheduler: Any) -> Iterator[Any]:
    """Yield a scheduler and its parts (SequentialLR, ChainedScheduler)."""
    if scheduler is not None:
        yield scheduler
        for part in getattr(scheduler, "_schedulers", ()):
            yield from _parts(part)


def _scale_scheduler(scheduler: Any, asked: float) -> None:
    bases = getattr(scheduler, "base_lrs", None)
    if not bases:
        return
    first = float(bases[0])
    for name in SCHEDULER_LISTS:
        values = getattr(scheduler, name, None)
        if isinstance(values, list):
            setattr(scheduler, name, [_scaled(float(value), first, asked) for value in values])
