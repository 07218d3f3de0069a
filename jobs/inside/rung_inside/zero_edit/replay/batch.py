"""Tells whether bad numbers that a root module was given came with the batch.

A script may call its layers one by one, so that each of them is a root. Then only what the first of them is given can
be the batch, and what the last one is given was computed by the others.
"""

from __future__ import annotations

import weakref
from typing import Any

from rung_inside.numerics import finite
from rung_inside.numerics.nested_tensors import tensors_in
from rung_inside.zero_edit import run_state


class Batch:
    """What the first root module after a backward pass was given, and whether others were called after it."""

    def __init__(self) -> None:
        # The arguments of the first root, and perhaps what else is known of its call.
        self.given: Any = ()
        self._first: Any = None
        self.has_others = False

    def add_call(self, module: Any, args: Any, kwargs: Any, *, is_first: bool) -> None:
        """Take in the call of a root; `is_first`: no other one came since the newest backward pass."""
        if is_first or self._first is None:
            self._first, self.given, self.has_others = weakref.ref(module), (args, kwargs), False
        elif self._first() is not module:
            self.has_others = True

    def is_finite(self, args: Any, kwargs: Any) -> bool | None:
        """Return whether the batch of a call with these arguments is finite; None: they may be computed, not data."""
        bad = _bad(self.given if self.has_others else (args, kwargs))
        if bad:
            is_computed = any(each.grad_fn is not None for each in bad) or len(run_state.frozen) > 0
            return None if is_computed else False
        return None if self.has_others and _bad((args, kwargs)) else True


def _bad(values: Any) -> list[Any]:
    return [each for each in tensors_in(values) if not finite.all_finite([each])]
