"""Searches, on the step that failed, for the smallest change that makes it finite in FP16 and equal to FP32.

The order: the code after the model, constants, and then the own code of the place where the first bad number appears,
one place after another; a place whose own code is not enough is taken as a whole, and one that has to saturate what it
hands over grows. The run is not changed by it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from statistics import median
from typing import Any, NamedTuple

import torch

from rung_inside.numerics import finite
from rung_inside.numerics.nested_tensors import tensors_in
from rung_inside.places import constants, fp16_places
from rung_inside.places.find import LOSS, WHOLE, unwrapped
from rung_inside.zero_edit.replay import rerun_forward

CONSTANTS = "clamp_constants"
MODULES = "fp32_modules"
# Outputs that differ from FP32's by more than this share of their norm are not cured.
WITHIN = 0.01
# Longer lists would cost as much as FP32 in the whole model.
MOST_PLACES = 16
TIMED = 3


class Cure(NamedTuple):
    """The rung, its places, and by which share a forward pass gets slower with it; None: it was not run."""

    rung: str
    places: tuple[str, ...] = ()
    cost: float | None = None

    def fields(self) -> dict[str, str]:
        """Return the fields of a record."""
        named = f"{self.rung}:{','.join(self.places)}" if self.places else self.rung
        return {"cure": named, **({} if self.cost is None else {"cost": f"{100 * max(0.0, self.cost):.1f}%"})}


def find_cure(call: Any) -> Cure | None:
    """Return the smallest cure of a call that fails in FP16 and not in FP32; None if only FP32 as a whole holds."""
    reference = _outputs(call, wide=True)
    if reference is None or not finite.all_sane(reference):
        return None
    if _holds(call, reference):
        # The model itself is well, so the bad number came after it, where a replay cannot go.
        return Cure(MODULES, (LOSS,))
    with constants.tried():
        if _holds(call, reference):
            return Cure(CONSTANTS, cost=0.0)
    places = _find_places(call, reference)
    return None if places is None else Cure(MODULES, places, _cost(call, places))


def _find_places(call: Any, reference: list[Any]) -> tuple[str, ...] | None:
    """Add the place of the first bad number until there is none, and let places grow until the outputs are FP32's."""
    places: list[str] = []
    model = type(unwrapped(call.module)).__name__
    for _ in range(MOST_PLACES):
        with fp16_places.tried(call.module, places):
            culprit = _first_bad(call)
            if culprit is None and _equals(call, reference):
                return tuple(places)
        grown = _with_place(places, culprit) if culprit is not None else _grown(places, model)
        if grown is None:
            return None
        places = grown
    return None


def _with_place(places: list[str], name: str) -> list[str] | None:
    """Return the list with the own code of a module, or with the module as a whole if its own code is in it."""
    if name not in places and name + WHOLE not in places:
        return [*places, name]
    return [each + WHOLE if each == name else each for each in places] if name in places else None


def _grown(places: list[str], model: str) -> list[str] | None:
    """Return the list with its last own code as a whole, or with the model's own code: numbers were saturated there."""
    own = [place for place in places if not place.endswith(WHOLE) and place != model]
    if own:
        return [place + WHOLE if place == own[-1] else place for place in places]
    return [*places, model] if places and model not in places else None


def _holds(call: Any, reference: list[Any]) -> bool:
    return _first_bad(call) is None and _equals(call, reference)


def _equals(call: Any, reference: list[Any]) -> bool:
    """Return whether the outputs are finite and those of FP32, as the places and constants are now."""
    outputs = _outputs(call, wide=False)
    if outputs is None or len(outputs) != len(reference) or not finite.all_sane(outputs):
        return False
    return all(map(_is_close, outputs, reference)) and _has_finite_gradients(call)


def _is_close(output: Any, reference: Any) -> bool:
    if output.shape != reference.shape:
        return False
    # Masks leave -inf in healthy outputs, at the same elements.
    wide = torch.nan_to_num(reference.double(), neginf=-1.0)
    difference = torch.nan_to_num(output.double(), neginf=-1.0) - wide
    return bool(difference.norm() <= WITHIN * wide.norm().clamp(min=1e-6))


def _outputs(call: Any, *, wide: bool) -> list[Any] | None:
    """Return the floating-point outputs of the call; None if it cannot be run."""
    try:
        with rerun_forward.preserved_state(call.device):
            output, _ = rerun_forward.forward(call, wide=wide)
    except Exception:
        return None
    return [each.detach() for each in tensors_in(output) if each.is_floating_point()]


def _has_finite_gradients(call: Any) -> bool:
    try:
        with rerun_forward.preserved_state(call.device):
            return rerun_forward.gradients_finite(call, wide=False)
    except rerun_forward.CannotRun:
        return True
    except Exception:
        return False


def _first_bad(call: Any) -> str | None:
    """Return the module whose code makes the first bad number; None if there is none."""
    found: list[str] = []
    with _watched(unwrapped(call.module), found):
        outputs = _outputs(call, wide=False)
    if found or outputs is None:
        return found[0] if found else type(unwrapped(call.module)).__name__
    return None


@contextlib.contextmanager
def _watched(model: Any, found: list[str]) -> Iterator[None]:
    """Record whose code makes the first bad number: a module that is handed one was called by that code."""
    calling: list[str] = []

    def enter(name: str) -> Any:
        def hook(_module: Any, args: Any) -> None:
            if not found and calling and not finite.all_sane(tensors_in(args)):
                found.append(calling[-1])
            calling.append(name)

        return hook

    def leave(module: Any, _args: Any, output: Any) -> None:
        name = calling.pop()
        # A module may keep a tensor for the loss, such as a penalty.
        kept = [each for each in vars(module).values() if isinstance(each, torch.Tensor)]
        if not found and not finite.all_sane([*tensors_in(output), *kept]):
            found.append(name)

    handles = []
    try:
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(enter(name or type(model).__name__)))
            handles.append(module.register_forward_hook(leave))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _cost(call: Any, places: tuple[str, ...]) -> float | None:
    """Return by which share a forward pass gets slower with these places."""
    plain = _seconds(call)
    with fp16_places.tried(call.module, places):
        cured = _seconds(call)
    return cured / plain - 1 if plain > 0 else None


def _seconds(call: Any) -> float:
    _outputs(call, wide=False)
    times = []
    for _ in range(TIMED):
        _wait(call)
        begin = time.perf_counter()
        _outputs(call, wide=False)
        _wait(call)
        times.append(time.perf_counter() - begin)
    return median(times)


def _wait(call: Any) -> None:
    if call.device.type == "cuda":
        torch.cuda.synchronize(call.device)
