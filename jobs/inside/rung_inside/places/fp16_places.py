"""Sets the two knobs that keep a run in FP16, `constants` and `fp32_modules`, and reports what they did."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from rung_inside.contract import records
from rung_inside.patching import patch
from rung_inside.patching.module_call import wrap_call
from rung_inside.places import autocast_state, constants, find, fp32_calls, loss_code, saturation

# A report waits for the GPU. A run that is stopped writes none at its end, so the last one must not be too old.
REPORT_EVERY = 1024
NOT_FOUND = "there is no module of this name in the model"


class _State:
    """What is asked, and what was found."""

    def __init__(self) -> None:
        self.clamps = False
        self.places: dict[str, fp32_calls.Place] = {}
        self.reasons: dict[str, str] = {}
        # The roots that were searched.
        self.roots: weakref.WeakSet[Any] = weakref.WeakSet()
        self.updates = 0


_now = _State()
# The names of the places that are asked for.
asked: list[str] = []
# The models of `rung_inside.attach`, and their classes.
_attached: weakref.WeakSet[Any] = weakref.WeakSet()
_wrapped: set[type] = set()


def start(asked_constants: Any, asked_places: Any) -> None:
    """Install what the knobs ask for; nothing without them."""
    _now.__init__()  # type: ignore[misc]
    _now.clamps = asked_constants == "clamp"
    if _now.clamps:
        constants.install()
    asked[:] = str(asked_places).split(",") if asked_places else []
    if asked:
        _install()
    if find.LOSS in asked:
        loss_code.install()


def _install() -> None:
    autocast_state.install()
    fp32_calls.install()


def tried(root: Any, names: Iterable[str]) -> contextlib.AbstractContextManager[None]:
    """Compute these places of a model in FP32 for a while, if they can be places."""
    _install()
    model, found = find.unwrapped(root), []
    for name in names:
        module, is_whole = find.find_module(root, name), name.endswith(find.WHOLE)
        if module is not None and not find.why_not(root, module, is_whole=is_whole):
            found.append(fp32_calls.Place(module, is_whole=is_whole, is_root=module is model))
    return fp32_calls.tried(found)


def has_places() -> bool:
    """Return whether places are asked for."""
    return bool(asked)


def is_asked() -> bool:
    return _now.clamps or has_places()


def is_place(module: Any) -> bool:
    """Return whether a root module is a place; its wrappers count as the model."""
    if not has_places():
        return False
    search(module)
    return fp32_calls.place_of(find.unwrapped(module)) is not None


def search(root: Any) -> None:
    """Find the places in a root module, once."""
    if root in _now.roots:
        return
    _now.roots.add(root)
    for name in asked:
        module = find.find_module(root, name) if name != find.LOSS else None
        if module is None:
            continue
        is_whole = name.endswith(find.WHOLE)
        why = find.why_not(root, module, is_whole=is_whole)
        if why:
            _now.reasons[name] = why
            continue
        is_root = module is find.unwrapped(root)
        place = fp32_calls.Place(module, is_whole=is_whole, is_root=is_root, by_root=module is root)
        _now.places[name] = place
        fp32_calls.add(place)


def attach(model: Any) -> None:
    """Make a model a root that its class calls."""
    if not has_places():
        return
    search(model)
    _attached.add(model)
    if type(model) not in _wrapped:
        _wrapped.add(type(model))
        wrap_call(type(model), _call_attached)


def _call_attached(then: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
    return (call_root if module in _attached else fp32_calls.call)(then, module, args, kwargs)


def call_root(then: Callable[..., Any], root: Any, args: Any, kwargs: Any) -> Any:
    """Call a root module with its places in FP32, and switch to FP32 after it if the loss is one."""
    patch.quietly(search, root)
    if find.LOSS not in asked:
        return fp32_calls.call_root(then, root, args, kwargs)
    device_type = fp32_calls.device_type_of(root, args, kwargs)
    loss_code.enter_model(device_type)
    result = fp32_calls.call_root(then, root, args, kwargs)
    return loss_code.leave_model(device_type, result)


def counts() -> dict[str, int]:
    """Return how often each place ran in FP32, in the order asked."""
    found = {name: place.ran for name, place in _now.places.items()}
    return {name: loss_code.ran() if name == find.LOSS else found.get(name, 0) for name in asked}


def effective() -> dict[str, str]:
    """Return the knobs as they are in force: the places that really ran."""
    values = {"constants": "clamp"} if _now.clamps else {}
    # Before the first update nothing has run that could be told.
    if asked and _now.updates:
        values["fp32_modules"] = ",".join(name for name, ran in counts().items() if ran) or "none"
    return values


def end_update() -> None:
    """Count an update; report at the first, the second, the fourth and so on, and at least every 1,024th."""
    _now.updates += 1
    saturation.end_update()
    if _now.updates & (_now.updates - 1) == 0 or _now.updates % REPORT_EVERY == 0:
        report()


def report() -> None:
    """Write how often each place ran, what was saturated and clamped, and why a place did not run."""
    if not is_asked() or not _now.updates:
        return
    values: dict[str, Any] = {"updates": _now.updates}
    if asked:
        values["ran"] = ",".join(f"{name}:{ran}" for name, ran in counts().items())
        values["saturated"] = saturation.count()
    records.emit("places", **values, **({"clamped": constants.count()} if _now.clamps else {}))
    for name in asked:
        if name not in _now.places and name != find.LOSS:
            patch.note(f"{name} stays in FP16: {_now.reasons.get(name, NOT_FOUND)}")
