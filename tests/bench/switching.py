"""Zero-edit switched on and off within one process, block by block, so that both are measured on the same machine.

Only torch and the standard library are needed. Call `start()` before torch is used, train a little, then `Switch`.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

# That of another version where two are compared.
INSIDE = Path(os.environ.get("RUNG_BENCH_INSIDE") or Path(__file__).parents[2] / "jobs" / "inside")
ROUNDS_OF_CHANCE = 400
# Steps after a switch that are not timed.
SETTLE = 3

# What was replaced, in its order: where, under which name, by what, and what had been there.
_replaced: list[tuple[Any, str, Any, Any]] = []


def start() -> None:
    """Enter this process as sitecustomize would, and remember whatever is replaced from here on."""
    sys.path.insert(0, str(INSIDE))
    os.environ.update(RUNG_MODE="zero-edit", RUNG_KNOBS="{}", RUNG_CHECKPOINT="", RUNG_CHECKPOINT_DIR="")
    from rung_inside import zero_edit
    from rung_inside.patching import patch

    own = patch.replace

    def remembered(owner: Any, name: str, hook: Any, make: Any) -> bool:
        before, done = vars(owner).get(name), own(owner, name, hook, make)
        if done:
            _replaced.append((owner, name, vars(owner)[name], before))
        return done

    patch.replace = remembered
    zero_edit.start()


class Switch:
    """Turns everything on or off that zero-edit has replaced by now."""

    def __init__(self, model: Any) -> None:
        import torch

        self._places = list(_replaced)
        call = vars(type(model)).get("__call__")
        known = any(owner is type(model) and name == "__call__" for owner, name, _, _ in self._places)
        if call is not None and not known:
            self._places.append((type(model), "__call__", call, None))
        self._aliases = [
            (torch.nn.utils, name, getattr(torch.nn.utils.clip_grad, name).__wrapped__)
            for name in ("clip_grad_norm_", "clip_grad_value_")
        ]
        self._is_on = True
        self._aliased = [getattr(owner, name) for owner, name, _ in self._aliases]

    def turn(self, *, on: bool) -> None:
        if on != self._is_on:
            (self._on if on else self._off)()
            self._is_on = on

    def _off(self) -> None:
        for owner, name, _, before in reversed(self._places):
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        for owner, name, original in self._aliases:
            setattr(owner, name, original)

    def _on(self) -> None:
        for owner, name, replaced, _ in self._places:
            setattr(owner, name, replaced)
        for (owner, name, _), replaced in zip(self._aliases, self._aliased, strict=True):
            setattr(owner, name, replaced)


@contextlib.contextmanager
def records_in_a_file() -> Iterator[Callable[[], list[str]]]:
    """Let standard output go to a file, as a job's does; gives a function that returns its lines."""
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as file, contextlib.redirect_stdout(file):
        os.environ["RUNG_LOG"] = file.name
        yield lambda: Path(file.name).read_text(encoding="utf-8").splitlines()
    os.environ.pop("RUNG_LOG")


def in_turns(
    switch: Switch,
    step: Callable[[], None],
    block: Callable[[], float],
    pairs: int,
    chance: random.Random | None = None,
) -> list[tuple[float, float]]:
    """Return the times of a block with and without, in pairs; which of the two comes first is left to chance."""
    chance, times = chance or random.Random(1), []
    for _ in range(pairs):
        with_us = without = 0.0
        for on in chance.sample([True, False], 2):
            switch.turn(on=on)
            # Replacing a method makes the interpreter forget what it had learned of the class.
            for _ in range(SETTLE):
                step()
            if on:
                with_us = block()
            else:
                without = block()
        times.append((with_us, without))
    switch.turn(on=True)
    return times


def overhead(times: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the overhead in per cent as the median over the pairs, and its 95 % bounds by resampling the pairs."""
    shares = [100 * (with_us / without - 1) for with_us, without in times]
    chance = random.Random(1)
    again = [median(chance.choices(shares, k=len(shares))) for _ in range(ROUNDS_OF_CHANCE)]
    bounds = quantiles(again, n=40)
    return median(shares), bounds[0], bounds[-1]
