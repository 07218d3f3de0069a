"""Owns the learning rate asked: a factor on what the script's schedule says, in force only during a step.

The factor is what is asked over what the script gave its first optimizer when it built it, for all groups alike.
"""

from __future__ import annotations

from typing import Any

from rung_inside.zero_edit import run_state

# The lr that the script gave its first optimizer, and what the newest step multiplied it with.
_first: list[float] = []
_newest: list[float] = [1.0]
# The groups that have the factor on them now; covers and what they cover share theirs.
_multiplied: set[int] = set()


def see_first(optimizer: Any) -> None:
    """Keep the first lr of all."""
    groups = getattr(optimizer, "param_groups", ())
    own = groups[0].get("initial_lr", groups[0].get("lr")) if groups else None
    if not _first and own is not None and float(own) > 0:
        _first.append(float(own))


def in_force() -> Any:
    """Return the script's first lr as the newest step really used it; None where no optimizer has an lr."""
    if not _first:
        return None
    asked = run_state.asked("lr")
    used = _first[0] * _newest[0]
    return float(asked) if asked is not None and abs(used - asked) <= 1e-12 * abs(asked) else used


def newest_factor() -> float:
    """Return what the newest step multiplied the script's own lr with."""
    return _newest[0]


class Factor:
    """Multiplies one optimizer's lrs, and puts them back."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._saved: list[tuple[Any, Any, Any]] = []

    def enter(self) -> None:
        asked = run_state.asked("lr")
        if asked is None or not _first:
            return
        for group in self._optimizer.param_groups:
            own = group.get("lr")
            if own is None or id(group) in _multiplied:
                continue
            used = own * (float(asked) / _first[0])
            group["lr"] = used
            _multiplied.add(id(group))
            self._saved.append((group, own, used))
        if self._saved:
            _, own, used = self._saved[0]
            _newest[0] = float(used) / float(own) if float(own) else float(asked) / _first[0]

    def leave(self) -> None:
        for group, own, used in self._saved:
            _multiplied.discard(id(group))
            # What the optimizer itself has set meanwhile stays.
            if group["lr"] is used:
                group["lr"] = own
        self._saved = []
