"""Applies the learning rate asked as a factor on the script's lr, only during a step.

The factor is the lr asked divided by the script's own lr. It is the same for all groups. The script's own lr is that of
the first optimizer that steps, before a schedule changes it: the peak of a schedule that sets the lr by itself, else
the lr that the schedule began with, else the one that the optimizer was made with.
"""

from __future__ import annotations

import weakref
from typing import Any

from rung_inside.zero_edit import run_state

# The lr that the script gave each optimizer when it made it, its own lr once one has stepped, and the newest factor.
_made_with: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
script_lr: list[float] = []
_newest_factor: list[float] = [1.0]
# Groups with the factor applied now; a wrapper optimizer shares its groups with the one inside.
_multiplied: set[int] = set()
# Entries of a group that a schedule makes: OneCycleLR its peak, all others the lr that they begin with.
OF_SCHEDULES = ("max_lr", "initial_lr")


def record_made(optimizer: Any) -> None:
    """Record the lr that an optimizer is made with."""
    lr = _first_of(optimizer, "initial_lr") or _first_of(optimizer, "lr")
    if lr:
        _made_with[optimizer] = lr


def record_step(optimizer: Any) -> None:
    """Record the script's own lr before the first step; an optimizer that never steps does not count."""
    if not script_lr:
        found = [_first_of(optimizer, name) for name in OF_SCHEDULES]
        lr = next(filter(None, found), None) or _made_with.get(optimizer) or _first_of(optimizer, "lr")
        if lr:
            script_lr.append(lr)


def _first_of(optimizer: Any, name: str) -> float | None:
    """Return an entry of the first group that has it above 0; a frozen part may have an lr of 0."""
    values = (group.get(name) for group in getattr(optimizer, "param_groups", ()))
    return next((float(value) for value in values if value is not None and float(value) > 0), None)


def effective_lr() -> Any:
    """Return the script's own lr times the factor of the newest step; None if no optimizer has an lr."""
    known = script_lr or list(_made_with.values())
    if not known:
        return None
    asked = run_state.asked_knob("lr")
    used = known[0] * _newest_factor[0]
    return float(asked) if asked is not None and abs(used - asked) <= 1e-12 * abs(asked) else used


def newest_factor() -> float:
    """Return the factor of the newest step."""
    return _newest_factor[0]


def used(lr: float | None) -> float | None:
    """Return the lr that the newest step used in place of this one; without an lr asked it is the same."""
    return lr if lr is None or run_state.asked.get("lr") is None else lr * newest_factor()


class LrFactor:
    """Multiplies the lrs of one optimizer, and restores them."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._saved: list[tuple[Any, Any, Any]] = []

    def enter(self) -> None:
        asked = run_state.asked_knob("lr")
        if asked is None or not script_lr:
            return
        for group in self._optimizer.param_groups:
            own = group.get("lr")
            if own is None or id(group) in _multiplied:
                continue
            used = own * (float(asked) / script_lr[0])
            group["lr"] = used
            _multiplied.add(id(group))
            self._saved.append((group, own, used))
        if self._saved:
            _, own, used = self._saved[0]
            _newest_factor[0] = float(used) / float(own) if float(own) else float(asked) / script_lr[0]

    def leave(self) -> None:
        for group, own, used in self._saved:
            _multiplied.discard(id(group))
            # Keep an lr that the optimizer itself has set.
            if group["lr"] is used:
                group["lr"] = own
        self._saved = []
