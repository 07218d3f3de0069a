"""Searches, on the step that failed, for the smallest change that makes it finite and equal to FP32.

The order: the code after the model, constants, and then the own code of the place where the first bad number appears,
one place after another. A place whose own code is not enough is taken as a whole, then the code that called it instead;
one that has to saturate what it hands over grows. Places that come near FP16's limit are taken in at once, if they cost
little. Where no places hold: BF16 if the device has it, and FP32 as a whole. The run is not changed by it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch

from rung_inside.numerics import finite
from rung_inside.numerics.nested_tensors import tensors_in
from rung_inside.places import constants, fp16_places, near_limit
from rung_inside.places.find import LOSS, WHOLE, unwrapped
from rung_inside.zero_edit.replay import rerun_forward

CONSTANTS = "clamp_constants"
MODULES = "fp32_modules"
BF16 = "bf16"
FP32 = "fp32"
# Outputs that differ from FP32's by more than this share of their norm are not cured.
WITHIN = 0.01
# BF16 has 8 bits, and each of many operations rounds to them: a healthy step differs by a few per cent.
BF16_WITHIN = 0.08
# The first GPUs that compute in BF16; older ones emulate it.
BF16_CAPABILITY = (8, 0)
# Places near the limit may make a forward pass slower by this share of it.
MOST_FOR_NEAR = 0.15
# Longer lists would cost as much as FP32 in the whole model.
MOST_PLACES = 16
TIMED = 3
_IN_BF16: dict[str, Any] = {"wide": True, "cast": torch.bfloat16}


class Cure(NamedTuple):
    """The rung, its places, and by which share a forward pass gets slower with it; None: not known.

    `whole`: the same of FP32 as a whole, beside places. The loss as the only place is concluded and not run.
    """

    rung: str
    places: tuple[str, ...] = ()
    cost: float | None = None
    whole: float | None = None

    def fields(self) -> dict[str, str]:
        """Return the fields of a record."""
        named = f"{self.rung}:{','.join(self.places)}" if self.places else self.rung
        shares = {"cost": self.cost, "whole": self.whole}
        known = {name: share for name, share in shares.items() if share is not None}
        return {"cure": named, **{name: f"{100 * max(0.0, share):.1f}%" for name, share in known.items()}}


def find_cure(call: Any) -> Cure | None:
    """Return the smallest cure of a call that fails in FP16 and not in FP32; None if FP32 does not hold either."""
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
    if places is not None:
        return _with_near_limit(call, reference, places)._replace(whole=_cost_of_whole(call))
    return _wider(call, reference)


def _wider(call: Any, reference: list[Any]) -> Cure | None:
    """Return BF16 if it holds, or FP32 as a whole."""
    if _has_bf16(call.device) and _equals(call, reference, BF16_WITHIN, **_IN_BF16):
        return Cure(BF16, cost=_share(_seconds(call), _seconds(call, **_IN_BF16)))
    if _has_finite_gradients(call, wide=True):
        return Cure(FP32, cost=_share(_seconds(call), _seconds(call, wide=True)))
    return None


def _cost_of_whole(call: Any) -> float | None:
    """Return by which share a forward pass in FP32 is slower, where no BF16 lies between it and some places in FP32."""
    return None if _has_bf16(call.device) else _share(_seconds(call), _seconds(call, wide=True))


def _has_bf16(device: Any) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= BF16_CAPABILITY
    return bool(device.type == "cpu")


def _with_near_limit(call: Any, reference: list[Any], places: tuple[str, ...]) -> Cure:
    """Return the cure by these places, and by those that come near the limit if they cost little more."""
    found = Cure(MODULES, places, _cost(call, places))
    with fp16_places.tried(call.module, places):
        names = near_limit.names_near_limit(unwrapped(call.module), lambda: _outputs(call, wide=False))
    near = [name for name in names if name not in places and name + WHOLE not in places]
    longer = (*places, *near)[:MOST_PLACES]
    if longer == places or found.cost is None:
        return found
    with fp16_places.tried(call.module, longer):
        holds = _holds(call, reference)
    cost = _cost(call, longer) if holds else None
    return found if cost is None or cost - found.cost > MOST_FOR_NEAR else Cure(MODULES, longer, cost)


def _find_places(call: Any, reference: list[Any]) -> tuple[str, ...] | None:
    """Add the place of the first bad number until there is none, and let places grow until the outputs are FP32's."""
    places: list[str] = []
    model = type(unwrapped(call.module)).__name__
    for _ in range(MOST_PLACES):
        with fp16_places.tried(call.module, places):
            culprits = _first_bad(call)
            if not culprits and _equals(call, reference):
                return tuple(places)
        grown = _with_place(places, culprits) if culprits else _grown(places, model)
        if grown is None:
            return None
        places = grown
    return None


def _with_place(places: list[str], culprits: list[str]) -> list[str] | None:
    """Return the list with the own code of a module, or with the module as a whole if its own code is in it.

    Where that did not help, the module was handed -inf, which a mask may hold: it is the code that called it. The model
    as a whole is taken only for a number of its own.
    """
    for name in culprits:
        if name in places:
            is_caller = name is culprits[-1] and name is not culprits[0]
            return None if is_caller else [each + WHOLE if each == name else each for each in places]
        if name + WHOLE not in places:
            return [*places, name]
        places = [each for each in places if each != name + WHOLE]
    return None


def _grown(places: list[str], model: str) -> list[str] | None:
    """Return the list with its last own code as a whole, or with the model's own code: numbers were saturated there."""
    own = [place for place in places if not place.endswith(WHOLE) and place != model]
    if own:
        return [place + WHOLE if place == own[-1] else place for place in places]
    return [*places, model] if places and model not in places else None


def _holds(call: Any, reference: list[Any]) -> bool:
    return not _first_bad(call) and _equals(call, reference)


def _equals(call: Any, reference: list[Any], within: float = WITHIN, *, wide: bool = False, cast: Any = None) -> bool:
    """Return whether the outputs are finite and those of FP32, as the places and constants are now."""
    outputs = _outputs(call, wide=wide, cast=cast)
    if outputs is None or len(outputs) != len(reference) or not finite.all_sane(outputs):
        return False
    close = all(map(partial(_is_close, within=within), outputs, reference))
    return close and _has_finite_gradients(call, wide=wide, cast=cast)


def _is_close(output: Any, reference: Any, within: float) -> bool:
    if output.shape != reference.shape:
        return False
    # Masks leave -inf in healthy outputs, at the same elements.
    wide = torch.nan_to_num(reference.double(), neginf=-1.0)
    difference = torch.nan_to_num(output.double(), neginf=-1.0) - wide
    return bool(difference.norm() <= within * wide.norm().clamp(min=1e-6))


def _outputs(call: Any, *, wide: bool, cast: Any = None) -> list[Any] | None:
    """Return the floating-point outputs of the call; None if it cannot be run."""
    try:
        with rerun_forward.preserved_state(call.device):
            output, _ = rerun_forward.forward(call, wide=wide, cast=cast)
    except Exception:
        return None
    return [each.detach() for each in tensors_in(output) if each.is_floating_point()]


def _has_finite_gradients(call: Any, *, wide: bool, cast: Any = None) -> bool:
    try:
        with rerun_forward.preserved_state(call.device):
            return rerun_forward.gradients_finite(call, wide=wide, cast=cast)
    except rerun_forward.CannotRun:
        return True
    except Exception:
        return False


def _first_bad(call: Any) -> list[str]:
    """Return the module whose code makes the first bad number, and those that called it; none if all are well."""
    found: list[str] = []
    with _watched(unwrapped(call.module), found):
        outputs = _outputs(call, wide=False)
    return found if found or outputs is not None else [type(unwrapped(call.module)).__name__]


@contextlib.contextmanager
def _watched(model: Any, found: list[str]) -> Iterator[None]:
    """Record whose code makes the first bad number: a module that is handed one was called by that code."""
    calling: list[str] = []

    def enter(name: str) -> Any:
        def hook(_module: Any, args: Any) -> None:
            if not found and calling and not finite.all_sane(tensors_in(args)):
                found.extend(reversed(calling))
            calling.append(name)

        return hook

    def leave(module: Any, _args: Any, output: Any) -> None:
        name = calling.pop()
        # A module may keep a tensor for the loss, such as a penalty.
        kept = [each for each in vars(module).values() if isinstance(each, torch.Tensor)]
        if not found and not finite.all_sane([*tensors_in(output), *kept]):
            found.extend([name, *reversed(calling)])

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
    return _share(plain, cured)


def _share(plain: float | None, cured: float | None) -> float | None:
    return cured / plain - 1 if plain and cured else None


def _seconds(call: Any, *, wide: bool = False, cast: Any = None) -> float | None:
    """Return the time of a forward pass; None if it ends with an exception, early or late."""
    if _outputs(call, wide=wide, cast=cast) is None:
        return None
    times = []
    for _ in range(TIMED):
        _wait(call)
        begin = time.perf_counter()
        _outputs(call, wide=wide, cast=cast)
        _wait(call)
        times.append(time.perf_counter() - begin)
    return median(times)


def _wait(call: Any) -> None:
    if call.device.type == "cuda":
        torch.cuda.synchronize(call.device)
