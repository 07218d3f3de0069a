"""The state of all random numbers that a script may use, as plain values: Python's, numpy's, torch's, and each GPU's.

Generators that a script makes for itself are not known here; those of a DataLoader are in data_place.py.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import torch

from rung_inside.contract.records import is_first_rank


def capture(*, gpus: bool) -> dict[str, Any]:
    """Return the state as values that can be saved; `gpus`: with that of the GPUs."""
    version, numbers, gauss = random.getstate()
    state: dict[str, Any] = {"python": [version, torch.tensor(numbers), gauss], "torch": torch.get_rng_state()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        state["numpy"] = [str(name), torch.tensor(keys.tolist()), *(each + 0 for each in rest)]
    # A script that has not used the GPUs gets no context on them from here.
    if gpus and torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore(state: Mapping[str, Any]) -> None:
    """Bring the state back; only on the first rank, whose state it is."""
    if not is_first_rank():
        return
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers.tolist()), gauss))
    torch.set_rng_state(state["torch"])
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in state:
        name, keys, *rest = state["numpy"]
        numpy.random.set_state((name, numpy.array(keys.tolist(), dtype="uint32"), *rest))
    if "cuda" in state and torch.cuda.is_available():
        for index, each in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(each, index)
