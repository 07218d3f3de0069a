"""What the calls stand for that pickles of torch, NumPy and Python make: tensors and plain data.

A function here takes the machine and the arguments of the call. Functions that call something else that the pickle
names (`_rebuild_from_type_v2`, `_reconstructor`, `getattr`) ask the machine, so that nothing is called that may not be.
"""

from __future__ import annotations

from typing import Any, Callable

from rung_inside.verify.pickles.objects import Bag, Dummy, Name, Ordered, fill
from rung_inside.verify.pickles.opcodes import LongText, damaged
from rung_inside.verify.pickles.permissions import CALLED, MADE, TABLE
from rung_inside.verify.stored.tensor import ITEM_BYTES, Storage, StoredTensor
from rung_inside.verify.stored.verdict import REFUSED, Unfit

Rebuild = Callable[[Any, "tuple[Any, ...]"], Any]
PARTIAL = Name("functools", "partial")
RANDOM_CONSTRUCTORS = ("__randomstate_ctor", "__generator_ctor", "__bit_generator_ctor")
ENCODINGS = ("latin1", "latin-1", "utf-8", "utf8", "ascii")


def _arguments(args: tuple[Any, ...], least: int) -> tuple[Any, ...]:
    if len(args) < least:
        raise damaged("a call without its arguments")
    return args


def _tensor(machine: Any, args: tuple[Any, ...]) -> StoredTensor:
    storage, offset, size, stride = _arguments(args, 4)[:4]
    if not isinstance(storage, Storage):
        raise damaged("a tensor without a storage")
    return StoredTensor(storage, offset, size, stride)


def _typed_tensor(machine: Any, args: tuple[Any, ...]) -> StoredTensor:
    storage, offset, size, stride, _, _, dtype = _arguments(args, 7)[:7]
    if not isinstance(storage, Storage) or not isinstance(dtype, Name) or dtype.name not in ITEM_BYTES:
        raise damaged("a tensor without a storage or a type")
    return StoredTensor(storage, offset, size, stride, dtype.name)


def _first(machine: Any, args: tuple[Any, ...]) -> Any:
    return _arguments(args, 1)[0]


def _second(machine: Any, args: tuple[Any, ...]) -> Any:
    return _arguments(args, 2)[1]


def _from_type(machine: Any, args: tuple[Any, ...]) -> Any:
    function, kind, inner, _ = _arguments(args, 4)[:4]
    _class(machine, kind)
    return machine.call(function, inner)


def _size(machine: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    values = args[0] if args else ()
    if not isinstance(values, (tuple, list)):
        raise damaged("a size that is no list")
    machine.charge(len(values))
    return tuple(values)


def _bytes(machine: Any, args: tuple[Any, ...]) -> Any:
    """Return bytes that protocol 2 writes as a text."""
    text = args[0] if args else b""
    if not isinstance(text, (str, bytes, LongText)) or (len(args) > 1 and args[1] not in ENCODINGS):
        raise Unfit(REFUSED, "holds bytes in an encoding that torch.save does not use")
    if isinstance(text, str):
        return LongText(len(text))  # nobody needs them, and a copy for each use could be large
    return text


def _bag(machine: Any, args: tuple[Any, ...]) -> Bag:
    items = args[0] if args else ()
    if not isinstance(items, (list, tuple)):
        raise damaged("a set of something that is no list")
    machine.charge(len(items))
    return Bag(items)


def _ordered(machine: Any, args: tuple[Any, ...]) -> Ordered:
    """Return a dict made of pairs or of another dict."""
    made, items = Ordered(), args[0] if args else ()
    if isinstance(items, dict):
        machine.charge(2 * len(items))
        made.update(items)
        return made
    for pair in items if isinstance(items, (list, tuple)) else ():
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise damaged("a dict of something that is no pair")
        machine.charge(3)
        fill(made, list(pair))
    return made


def _default(machine: Any, args: tuple[Any, ...]) -> Ordered:
    return _ordered(machine, args[1:])


def _class(machine: Any, kind: Any) -> Name:
    """Return a class that the pickle may make objects of."""
    if not isinstance(kind, Name) or machine.names[kind] < MADE:
        raise Unfit(REFUSED, f"would use {kind if isinstance(kind, Name) else 'a value'} as a class when loaded")
    return kind


def _reconstructed(machine: Any, args: tuple[Any, ...]) -> Any:
    kind, base, state = _arguments(args, 3)[:3]
    if not isinstance(base, Name) or base.module != "builtins":
        raise Unfit(REFUSED, f"would call {base if isinstance(base, Name) else 'a value'} when loaded")
    return Dummy(_class(machine, kind), () if state is None else (state,))


def _new(machine: Any, args: tuple[Any, ...]) -> Any:
    return machine.make(_arguments(args, 1)[0], args[1:])


def _new_with_names(machine: Any, args: tuple[Any, ...]) -> Any:
    kind, inner, named = _arguments(args, 3)[:3]
    return machine.make(kind, (inner, named))


def _attribute(machine: Any, args: tuple[Any, ...]) -> Any:
    """Return an attribute of a class, as pickles name methods and, in Python 3.11, members of enums."""
    kind, name = _arguments(args, 2)[:2]
    if type(name) is not str or not name.isidentifier() or name.startswith("__"):
        raise Unfit(REFUSED, "would run builtins.getattr with a computed name when loaded")
    return Dummy(Name(_class(machine, kind).module, f"{kind.name}.{name}"))


def _random(machine: Any, args: tuple[Any, ...]) -> Any:
    """Return a generator of NumPy. Its functions call what they are given, so that must be one of NumPy's, too."""
    for each in args:
        name = each.name if isinstance(each, Dummy) else each
        if type(name) is not str and not (isinstance(name, Name) and name.module.startswith("numpy.random.")):
            raise Unfit(REFUSED, f"would call {name if isinstance(name, Name) else 'a value'} when loaded")
    return Dummy(Name("numpy.random._pickle", "Generator"), args)


def _partial(machine: Any, args: tuple[Any, ...]) -> Any:
    """Return a call that is kept for later, such as the optimizer of a Hydra config; the script will make it."""
    _callable_later(machine, _arguments(args, 1)[0])
    return Dummy(PARTIAL, args)


def _callable_later(machine: Any, function: Any) -> None:
    known = isinstance(function, Name) and (function in TABLE or machine.names[function] == CALLED)
    if not known or function in REBUILT:
        raise Unfit(REFUSED, f"would keep {function if isinstance(function, Name) else 'a value'} to be called later")


def check_state(machine: Any, made: Dummy, state: Any) -> None:
    """Refuse a state that changes what a kept call calls."""
    if made.name == PARTIAL:
        if not isinstance(state, tuple) or not state:
            raise damaged("a kept call without its function")
        _callable_later(machine, state[0])


def _of(module: str, calls: dict[str, Rebuild]) -> dict[Name, Rebuild]:
    return {Name(module, name): function for name, function in calls.items()}


REBUILT: dict[Name, Rebuild] = {
    **_of(
        "torch._utils",
        {
            **dict.fromkeys(("_rebuild_tensor", "_rebuild_tensor_v2"), _tensor),
            "_rebuild_tensor_v3": _typed_tensor,
            "_rebuild_parameter": _first,
            "_rebuild_parameter_with_state": _first,
            "_rebuild_device_tensor_from_cpu_tensor": _first,
            "_rebuild_nested_tensor": _first,
            **dict.fromkeys(("_rebuild_sparse_tensor", "_rebuild_sparse_csr_tensor"), _second),
        },
    ),
    **_of("torch._tensor", {"_rebuild_from_type": _from_type, "_rebuild_from_type_v2": _from_type}),
    **_of("torch.nn.parameter", {"Parameter": _first, "Buffer": _first}),
    **_of("torch", {"Size": _size}),
    **_of("_codecs", {"encode": _bytes}),
    **_of("collections", {"OrderedDict": _ordered, "defaultdict": _default, "Counter": _ordered, "deque": _bag}),
    **_of("builtins", {"set": _bag, "frozenset": _bag, "bytearray": _bytes, "bytes": _bytes, "getattr": _attribute}),
    **_of("numpy.random._pickle", dict.fromkeys(RANDOM_CONSTRUCTORS, _random)),
    **_of("functools", {"partial": _partial}),
    **_of("copyreg", {"_reconstructor": _reconstructed, "__newobj__": _new, "__newobj_ex__": _new_with_names}),
}
