"""Reads a pickle without running any of its code: it returns tensors and plain data, and a dummy for every class.

For files that torch.load(weights_only=True) refuses because of a harmless class, and for a torch without that option.
What the pickle would call is recorded by name and never imported.
"""

from __future__ import annotations

import _compat_pickle
import importlib.util
import os
import pickle
import re
from typing import Any

from rung_inside.verify.verdict import UNVERIFIED, Unfit

STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "UntypedStorage": "uint8",
    "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128",
}  # fmt: skip
# Plain data that people keep in checkpoints, and classes of the job; loading such a file runs nothing else.
HARMLESS = re.compile(
    r"numpy\.(?:_?core\.(?:multiarray|numeric)\.\w+|ndarray|dtype|dtypes\.\w+|random\.\w+\.\w+|\w*(?:int|float)\d+)"
    r"|argparse\.Namespace|types\.SimpleNamespace|datetime\.\w+|pathlib\.\w+|_codecs\.encode|copyreg\._reconstructor"
    r"|copy_reg\._reconstructor|collections\.(?:OrderedDict|defaultdict|deque|Counter)|enum\.\w+|uuid\.UUID"
    r"|(?:builtins|__builtin__)\.(?:set|frozenset|bytearray|complex|slice|object|int|float|str|list|dict|tuple|bool|bytes)"
    r"|decimal\.Decimal|torch\.(?:Size|device|dtype|\w*int\d+|\w*float\d+|bool|strided|Tensor|Generator|\w+Storage)"
    r"|torch\.(?:_utils|_tensor|storage|optim|nn|distributed|amp|cuda\.amp|torch_version|serialization)\.[\w.]+"
    r"|(?:__main__|transformers|lightning|pytorch_lightning|lightning_fabric|accelerate|peft|omegaconf|mmengine)\.[\w.]+"
)


# Names of Python 2 modules, which a pickle maps to modules of Python 3.
OLD_NAMES = {name.partition(".")[0] for name in _compat_pickle.IMPORT_MAPPING}


def is_harmless(name: str) -> bool:
    """Return whether loading a class of this name runs only code of torch, of plain data, or of the job."""
    return HARMLESS.fullmatch(name) is not None or _is_of_the_job(name.partition(".")[0])


def _is_of_the_job(module: str) -> bool:
    """Return whether a module is with the script, or cannot be found. It is not imported."""
    if module in OLD_NAMES or not module.isidentifier():
        return False
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return False
    if spec is None:
        return True
    places = [place for place in (spec.origin, *(spec.submodule_search_locations or ())) if place]
    return bool(places) and not any(_installed(os.path.realpath(place)) for place in places)


def _installed(path: str) -> bool:
    """Return whether a file is of Python, of an installed package, or does not exist."""
    standard = os.path.dirname(os.path.realpath(os.__file__)) + os.sep
    packages = {"site-packages", "dist-packages"} & set(path.split(os.sep))
    return bool(packages) or path.startswith(standard) or not os.path.exists(path)


class Dummy(dict):  # type: ignore[type-arg]
    """Replaces an object of any class; keeps its data, so that tensors in it are found."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(named)
        if args:
            self["<args>"] = args

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.update(state)
        else:
            self["<state>"] = state

    def append(self, item: Any) -> None:
        self.setdefault("<items>", []).append(item)

    def extend(self, items: Any) -> None:
        self.setdefault("<items>", []).extend(items)

    add = append
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other


class Ordered(dict):  # type: ignore[type-arg]
    """Replaces an OrderedDict; that of a state dict has the attribute `_metadata`, which is not needed here."""

    def __setstate__(self, state: Any) -> None:
        """Ignore attributes."""


class Storage:
    """The raw numbers of some tensors; buffer and offset are set when they are known."""

    def __init__(self, dtype: Any, count: int) -> None:
        self.dtype, self.count = dtype, count
        self.buffer: Any = None
        self.offset = 0

    def tensor(self) -> Any:
        import torch

        if self.count == 0:
            return torch.empty(0, dtype=self.dtype)
        return torch.frombuffer(self.buffer, dtype=self.dtype, count=self.count, offset=self.offset)


class LazyTensor:
    """A tensor that is made when it is needed."""

    def __init__(self, storage: Storage, offset: int, size: Any, stride: Any, dtype: Any = None) -> None:
        self.storage, self.offset, self.size, self.stride, self.dtype = storage, offset, size, stride, dtype

    def rung_tensor(self) -> Any:
        flat = self.storage.tensor()
        flat = flat if self.dtype is None else flat.view(self.dtype)
        return flat.as_strided(tuple(self.size), tuple(self.stride), self.offset)


class PlainUnpickler(pickle._Unpickler):
    """The unpickler in Python, with its own answer for every name."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, encoding="utf-8")
        self.storages: dict[str, Storage] = {}
        self.foreign: dict[str, None] = {}

    def find_class(self, module: str, name: str) -> Any:
        known = _known(module, name)
        if known is not None:
            return known
        self.foreign[f"{module}.{name}"] = None
        return type("Dummy", (Dummy,), {})

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, tuple) and len(pid) > 1 and pid[0] == "module":
            return pid[1]  # the old format keeps a class's source beside it
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage" or pid[1] is None:
            raise Unfit(UNVERIFIED, "holds a storage of an unknown kind")
        key, count = str(pid[2]), int(pid[4])
        if key not in self.storages:
            self.storages[key] = Storage(pid[1], count)
        return self.storages[key]


def _known(module: str, name: str) -> Any:
    import torch

    if (module, name) == ("collections", "OrderedDict"):
        return Ordered
    if module == "torch" and name in STORAGES:
        return getattr(torch, STORAGES[name])
    if module == "torch.storage" and name in ("UntypedStorage", "_UntypedStorage"):
        return torch.uint8
    if module == "torch" and name == "Size":
        return tuple
    if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
        return getattr(torch, name)
    if (module, name) == ("builtins", "set") or (module, name) == ("__builtin__", "set"):
        return set
    return REBUILT.get(name) if module in ("torch._utils", "torch._tensor") else None


def _tensor(storage: Storage, offset: int, size: Any, stride: Any, *rest: Any) -> LazyTensor:
    return LazyTensor(storage, offset, size, stride)


def _typed_tensor(storage: Storage, offset: int, size: Any, stride: Any, *rest: Any) -> LazyTensor:
    return LazyTensor(storage, offset, size, stride, rest[2])


def _parameter(data: Any, *rest: Any) -> Any:
    return data


REBUILT = {
    "_rebuild_tensor": _tensor,
    "_rebuild_tensor_v2": _tensor,
    "_rebuild_tensor_v3": _typed_tensor,
    "_rebuild_parameter": _parameter,
    "_rebuild_parameter_with_state": _parameter,
}
