"""Collects what a run consists of from its live objects, and loads it into those of a later run.

Trained parameters are kept with their optimizer and matched by their order, shapes and names. All other tensors of the
models (buffers, frozen parameters) are kept by module. Values are plain, so that the file can be loaded without code.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from rung_inside.numerics.fp16_master_weights import master, set_master
from rung_inside.zero_edit import run_state

PLAIN = (type(None), bool, int, float, str)
KINDS = (("optimizer", run_state.optimizers), ("scheduler", run_state.schedulers), ("scaler", run_state.scalers))
# The only key of a dict that stands for a Counter: an older torch loads none without code.
COUNTER = "collections.Counter"
_MISSING = object()


def collect() -> dict[str, Any]:
    """Return the state of all models, optimizers, schedulers and scalers."""
    names = _names()
    optimizers = [
        {
            "class": _class(each),
            "names": [names.get(id(parameter), "") for parameter in trained_by(each)],
            "parameters": [_value(parameter) for parameter in trained_by(each)],
            "state": _plain(each.state_dict()),
        }
        for each in run_state.optimizers
    ]
    rest = {
        kind: [{"class": _class(each), "state": _plain(each.state_dict())} for each in things]
        for kind, things in KINDS[1:]
    }
    modules = [{"class": _class(each), "tensors": _own_tensors(each)} for each in run_state.models]
    return {"optimizer": optimizers, **rest, "modules": modules}


def why_not_saved() -> str | None:
    """Return why the state cannot be saved: another process holds a part of it. None: it can."""
    for optimizer in run_state.optimizers:
        for each in trained_by(optimizer):
            if type(each.data) is not torch.Tensor or type(each).__name__ == "FlatParameter":
                return f"its parameters are sharded ({type(each.data).__name__})"
    return None


def missing(state: Mapping[str, Any]) -> str | None:
    """Return which objects of the checkpoint the script has not made yet; None: there are enough."""
    for kind, things in KINDS:
        if len(things) < len(state[kind]):
            return f"the script has {_count(things, kind)} and the checkpoint {_count(state[kind], kind)}"
    return None


def mismatch(state: Mapping[str, Any]) -> str | None:
    """Return what of the checkpoint does not fit the live objects; None: all of it does."""
    for kind, things in KINDS:
        if len(things) != len(state[kind]):
            return f"the script has {_count(things, kind)} and the checkpoint {_count(state[kind], kind)}"
        for number, (thing, saved) in enumerate(zip(things, state[kind]), 1):  # noqa: B905 - Python 3.8
            if _class(thing) != saved["class"]:
                return f"{kind} {number} is {_class(thing)}, and {saved['class']} in the checkpoint"
    names = _names_of_all()
    pairs = zip(run_state.optimizers, state["optimizer"])  # noqa: B905 - Python 3.8
    return next((why for each, saved in pairs if (why := _parameters_differ(each, saved, names))), None)


def _parameters_differ(optimizer: Any, saved: Mapping[str, Any], names: Mapping[int, str]) -> str | None:
    live = trained_by(optimizer)
    if len(live) != len(saved["parameters"]):
        return f"{len(live)} parameters are trained, and {len(saved['parameters'])} in the checkpoint"
    groups = [len(group["params"]) for group in optimizer.param_groups]
    were = [len(group["params"]) for group in saved["state"]["param_groups"]]
    if groups != were:
        return f"the groups of an optimizer have {groups} parameters, and {were} in the checkpoint"
    for parameter, value, was in zip(live, saved["parameters"], saved["names"]):  # noqa: B905 - Python 3.8
        name = names.get(id(parameter), "")
        if tuple(parameter.shape) != tuple(value.shape):
            shapes = f"{list(parameter.shape)}, and {list(value.shape)} in the checkpoint"
            return f"{name or was or 'a parameter'} has the shape {shapes}"
        # A module may be called alone before the one that it is a part of.
        if name and was and not (name.endswith(was) or was.endswith(name)):
            return f"{name} stands where the checkpoint has {was}"
    return None


def load_weights(state: Mapping[str, Any]) -> None:
    """Load the trained parameters."""
    for optimizer, saved in zip(run_state.optimizers, state["optimizer"]):  # noqa: B905 - Python 3.8
        for parameter, value in zip(trained_by(optimizer), saved["parameters"]):  # noqa: B905 - Python 3.8
            _set(parameter, value)


def drop_gradients() -> None:
    """Forget the gradients of a rehearsal: a script that accumulates them would use them in its next update."""
    for optimizer in run_state.optimizers:
        for parameter in trained_by(optimizer):
            parameter.grad = None


def load_rest(state: Mapping[str, Any]) -> None:
    """Load the states of optimizers, schedulers and scalers."""
    for kind, things in KINDS:
        for thing, saved in zip(things, state[kind]):  # noqa: B905 - Python 3.8
            thing.load_state_dict(_with_counters(saved["state"]))


def load_module(module: Any, saved: Mapping[str, Any]) -> bool:
    """Load the tensors of a module that no optimizer trains; False if they are not those of this module."""
    live = dict(_untrained(module))
    fits = live.keys() == saved["tensors"].keys() and _class(module) == saved["class"]
    if not fits or any(live[name].shape != value.shape for name, value in saved["tensors"].items()):
        return False
    for name, value in saved["tensors"].items():
        _set(live[name], value)
    return True


def trained_by(optimizer: Any) -> list[Any]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def _names() -> dict[int, str]:
    return {id(each): name for root in run_state.models for name, each in root.named_parameters()}


def _names_of_all() -> dict[int, str]:
    """Return the longest name of every parameter, also in models that the script has not called yet."""
    names: dict[int, str] = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.nn.Module):
            for name, each in thing.named_parameters():
                names[id(each)] = max(names.get(id(each), ""), name, key=len)
    return names


def _own_tensors(module: Any) -> dict[str, torch.Tensor]:
    return {name: _value(each) for name, each in _untrained(module)}


def _untrained(module: Any) -> Iterator[tuple[str, torch.Tensor]]:
    trained = {id(each) for optimizer in run_state.optimizers for each in trained_by(optimizer)}
    for named in (module.named_parameters(), module.named_buffers()):
        yield from ((name, each) for name, each in named if id(each) not in trained)


def _value(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor on the CPU, without the rest of a storage that it may be a part of."""
    native = tensor.dtype == torch.float16 and run_state.asked_knob("precision") == "native_fp16"
    value = (master(tensor) if native else tensor).detach().cpu()
    # torch before 2.0 has no untyped_storage.
    held: Any = value.untyped_storage() if hasattr(value, "untyped_storage") else value.storage().untyped()  # type: ignore[no-untyped-call]
    return value.clone() if held.nbytes() > value.numel() * value.element_size() else value


def _set(tensor: torch.Tensor, value: torch.Tensor) -> None:
    if tensor.dtype == torch.float16 and run_state.asked_knob("precision") == "native_fp16":
        set_master(tensor, value)
        return
    with torch.no_grad():
        tensor.copy_(value)


def _class(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _count(things: Any, kind: str) -> str:
    return f"{len(things)} {kind}{'' if len(things) == 1 else 's'}"


def _plain(value: Any) -> Any:
    """Return a state without what is no data, such as a function: the script makes that again."""
    if isinstance(value, Counter):
        return {COUNTER: dict(value)}
    if isinstance(value, Mapping):
        kept = {key: _plain(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each is not _MISSING}
    if type(value) in (list, tuple):
        items = [_plain(each) for each in value]
        return _MISSING if any(each is _MISSING for each in items) else type(value)(items)
    if isinstance(value, torch.Tensor):
        return value
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    return value if type(value) in PLAIN else _MISSING


def _with_counters(value: Any) -> Any:
    if isinstance(value, dict):
        inner = value.get(COUNTER)
        return {key: _with_counters(each) for key, each in value.items()} if inner is None else Counter(inner)
    return [_with_counters(each) for each in value] if type(value) is list else value
