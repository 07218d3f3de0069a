"""Owns reading a pickle without running anything of it: tensors and plain data come out, every class is a dummy.

For files that torch.load(weights_only=True) refuses because of a harmless class, and for a torch that has no such
option. What the pickle would call is noted by name and never looked up.
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
# Plain data that people keep in checkpoints, and the job's own classes; loading such a file runs nothing else.
HARMLESS = re.compile(
    r"numpy\.(?:_?core\.(?:multiarray|numeric)\.\w+|ndarray|dtype|dtypes\.\w+|random\.\w+\.\w+|\w*(?:int|float)\d+)"
    r"|argparse\.Namespace|types\.SimpleNamespace|datetime\.\w+|pathlib\.\w+|_codecs\.encode|copyreg\._reconstructor"
    r"|copy_reg\._reconstructor|collections\.(?:OrderedDict|defaultdict|deque|Counter)|enum\.\w+|uuid\.UUID"
    r"|(?:builtins|__builtin__)\.(?:set|frozenset|bytearray|complex|slice|object|int|float|str|list|dict|tuple|bool|bytes)"
    r"|decimal\.Decimal|torch\.(?:Size|device|dtype|\w*int\d+|\w*float\d+|bool|strided|Tensor|Generator|\w+Storage)"
    r"|torch\.(?:_utils|_tensor|storage|optim|nn|distributed|amp|cuda\.amp|torch_version|serialization)\.[\w.]+"
    r"|(?:__main__|transformers|lightning|pytorch_lightning|lightning_fabric|accelerate|peft|omegaconf|mmengine)\.[\w.]+"
)


# Under these names of Python 2 a pickle reaches modules of today.
OLD_NAMES = {name.partition(".")[0] for name in _compat_pickle.IMPORT_MAPPING}


def is_harmless(name: str) -> bool:
    """Tell whether loading a class of this name runs nothing but torch's, plain data's, or the job's own code."""
    return HARMLESS.fullmatch(name) is not None or _jobs_own(name.partition(".")[0])


def _jobs_own(module: str) -> bool:
    """Tell whether a module lies with the script, or nowhere that we see. Looked for, not imported."""
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
    """Tell whether a file is no script's: one of Python's own, of an installed package, or none at all."""
    standard = os.path.dirname(os.path.realpath(os.__file__)) + os.sep
    packages = {"site-packages", "dist-packages"} & set(path.split(os.sep))
    return bool(packages) or path.startswith(standard) or not os.path.exists(path)


class Dummy(dict):  # type: ignore[type-arg]
    """Stands for an object of any class; keeps what it was given, so that tensors in it are found."""

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
    """Stands for an OrderedDict: that of a state dict has its `_metadata` as an attribute, which tells nothing here."""

    def __setstate__(self, state: Any) -> None:
        """Take no attributes."""


class Storage:
    """The raw numbers of some tensors: where they lie is filled in when it is known."""

    def __init__(self, dtype: Any, count: int) -> None:
        self.dtype, self.count = dtype, count
        self.buffer: Any = None
        self.offset = 0

    def tensor(self) -> Any:
        import torch

        if self.count == 0:
            return torch.empty(0, dtype=self.dtype)
        return torch.frombuffer(self.buffer, dtype=self.dtype, count=self.count, offset=self.offset)


class Later:
    """A tensor that is made when it is asked for."""

    def __init__(self, storage: Storage, offset: int, size: Any, stride: Any, dtype: Any = None) -> None:
        self.storage, self.offset, self.size, self.stride, self.dtype = storage, offset, size, stride, dtype

    def rung_tensor(self) -> Any:
        flat = self.storage.tensor()
        flat = flat if self.dtype is None else flat.view(self.dtype)
        return flat.as_strided(tuple(self.size), tuple(self.stride), self.offset)


class PlainUnpickler(pickle._Unpickler):
    """The unpickler in Python, with every name answered by us."""

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

    def persistent_load(self, word: Any) -> Any:
        if isinstance(word, tuple) and len(word) > 1 and word[0] == "module":
            return word[1]  # the old format keeps a class's source beside it
        if not isinstance(word, tuple) or len(word) < 5 or word[0] != "storage" or word[1] is None:
            raise Unfit(UNVERIFIED, "holds a storage of an unknown kind")
        key, count = str(word[2]), int(word[4])
        if key not in self.storages:
            self.storages[key] = Storage(word[1], count)
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


def _tensor(storage: Storage, offset: int, size: Any, stride: Any, *rest: Any) -> Later:
    return Later(storage, offset, size, stride)


def _typed_tensor(storage: Storage, offset: int, size: Any, stride: Any, *rest: Any) -> Later:
    return Later(storage, offset, size, stride, rest[2])


def _parameter(data: Any, *rest: Any) -> Any:
    return data


REBUILT = {
    "_rebuild_tensor": _tensor,
    "_rebuild_tensor_v2": _tensor,
    "_rebuild_tensor_v3": _typed_tensor,
    "_rebuild_parameter": _parameter,
    "_rebuild_parameter_with_state": _parameter,
}
