"""Applies the learning rate asked as a factor on the script's lr, only during a step.

The factor is the lr asked divided by the lr that the script gave its first optimizer. It is the same for all groups.
"""

from __future__ import annotations

from typing import Any

from rung_inside.zero_edit import run_state

# The lr that the script gave its first optimizer, and the factor of the newest step.
_first_lr: list[float] = []
_newest_factor: list[float] = [1.0]
# Groups with the factor applied now; a wrapper optimizer shares its groups with the one inside.
_multiplied: set[int] = set()


def record_first_lr(optimizer: Any) -> None:
    """Record the lr of the first optimizer."""
    groups = getattr(optimizer, "param_groups", ())
    script_lr = groups[0].get("initial_lr", groups[0].get("lr")) if groups else None
    if not _first_lr and script_lr is not None and float(script_lr) > 0:
        _first_lr.append(float(script_lr))


def effective_lr() -> Any:
    """Return the script's first lr as the newest step used it; None if no optimizer has an lr."""
    if not _first_lr:
        return None
    asked = run_state.asked_knob("lr")
    used = _first_lr[0] * _newest_factor[0]
    return float(asked) if asked is not None and abs(used - asked) <= 1e-12 * abs(asked) else used


def newest_factor() -> float:
    """Return the factor of the newest step."""
    return _newest_factor[0]


class LrFactor:
    """Multiplies the lrs of one optimizer, and restores them."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._saved: list[tuple[Any, Any, Any]] = []

    def enter(self) -> None:
        asked = run_state.asked_knob("lr")
        if asked is None or not _first_lr:
            return
        for group in self._optimizer.param_groups:
            script_lr = group.get("lr")
            if script_lr is None or id(group) in _multiplied:
                continue
            used = script_lr * (float(asked) / _first_lr[0])
            group["lr"] = used
            _multiplied.add(id(group))
            self._saved.append((group, script_lr, used))
        if self._saved:
            _, script_lr, used = self._saved[0]
            _newest_factor[0] = float(used) / float(script_lr) if float(script_lr) else float(asked) / _first_lr[0]

    def leave(self) -> None:
        for group, script_lr, used in self._saved:
            _multiplied.discard(id(group))
            # Keep an lr that the optimizer itself has set.
            if group["lr"] is used:
                group["lr"] = script_lr
        self._saved = []
