"""What the calls stand for that pickles of torch, NumPy and Python make: tensors and plain data.

A function here takes the machine and the arguments of the call. Functions that call something else that the pickle
names (`_reconstructor`, `getattr`, `partial`) check it against the exact lists, so that nothing else is called.
"""

from __future__ import annotations

from typing import Any

from rung_inside.verify.pickles import arrays, tensors
from rung_inside.verify.pickles.keeping import check_class, check_kept, check_keys, check_plain, is_mapping
from rung_inside.verify.pickles.objects import Arguments, Bag, Dummy, Fixed, Name, Ordered, fill
from rung_inside.verify.pickles.opcodes import LongText, damaged
from rung_inside.verify.pickles.permissions import ENUMS, MADE, TABLE, VALUES, is_attribute, is_known_class
from rung_inside.verify.pickles.tensors import Rebuild, arguments
from rung_inside.verify.stored.verdict import REFUSED, Unfit

PARTIAL = Name("functools", "partial")
RANDOM = Name("numpy.random._pickle", "__generator_ctor")
RANDOM_CONSTRUCTORS = ("__randomstate_ctor", "__generator_ctor", "__bit_generator_ctor")
ENCODINGS = ("latin1", "latin-1", "utf-8", "utf8", "ascii")
# The classes of Python that a class may be based on, for `_reconstructor`.
BASES = ("object", "int", "float", "str", "list", "dict", "tuple", "set", "frozenset", "bytes", "complex")
# What may make the values that a dict has by default. It is called without arguments.
FACTORIES = ("OrderedDict", "defaultdict", "Counter", "deque")


def _size(machine: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    values = args[0] if args else ()
    if type(values) not in (tuple, list):
        raise damaged("a size that is no list")
    check_plain(machine, values)
    machine.charge(len(values))
    return tuple(values)


def _bytes(machine: Any, args: tuple[Any, ...]) -> Any:
    """Return bytes that protocol 2 writes as a text."""
    text = args[0] if args else b""
    if type(text) not in (str, bytes, LongText) or (len(args) > 1 and args[1] not in ENCODINGS):
        raise Unfit(REFUSED, "holds bytes in an encoding that torch.save does not use")
    if isinstance(text, str):
        return LongText(len(text))  # nobody needs them, and a copy for each use could be large
    return text


def _bag(machine: Any, args: tuple[Any, ...]) -> Bag:
    items = args[0] if args else ()
    if type(items) not in (list, tuple, Bag):
        raise Unfit(REFUSED, "would make a set of something that is no list when loaded")
    check_plain(machine, args[1:])
    machine.charge(len(items))
    return Bag(items)


def _set(machine: Any, args: tuple[Any, ...]) -> Bag:
    made = _bag(machine, args)
    check_keys(machine, made)
    return made


def _ordered(machine: Any, args: tuple[Any, ...]) -> Ordered:
    """Return a dict made of pairs or of another dict."""
    made, items = Ordered(), args[0] if args else ()
    if len(args) > 1 or not (is_mapping(items) or type(items) in (list, tuple)):
        raise Unfit(REFUSED, "would make a dict of something that is no dict when loaded")
    if is_mapping(items):
        machine.charge(2 * len(items))
        made.update(items)
        return made
    for pair in items:
        if type(pair) not in (list, tuple) or len(pair) != 2:
            raise damaged("a dict of something that is no pair")
        machine.charge(3)
        check_keys(machine, pair[:1])
        fill(made, list(pair))
    return made


def _default(machine: Any, args: tuple[Any, ...]) -> Ordered:
    for factory in args[:1]:
        if factory is not None and not (type(factory) is Name and _is_factory(machine, factory)):
            raise Unfit(REFUSED, f"would keep {factory if isinstance(factory, Name) else 'a value'} to be called later")
    return _ordered(machine, args[1:])


def _is_factory(machine: Any, name: Name) -> bool:
    if name in TABLE:
        listed = name.module == "collections" and name.name in FACTORIES
        return name in VALUES or listed or name.name == "_refresh_per_optimizer_state"
    return bool(machine.names[name] >= MADE and is_known_class(name))


def _reconstructed(machine: Any, args: tuple[Any, ...]) -> Any:
    """Return an object of a class in protocols 0 and 1; its base takes the data."""
    kind, base, state = arguments(args, 3)[:3]
    if type(base) is not Name or base.module != "builtins" or base.name not in BASES:
        raise Unfit(REFUSED, f"would call {base if isinstance(base, Name) else 'a value'} when loaded")
    if check_class(machine, kind) in REBUILT or (kind in TABLE and base.name not in ("object", "dict", "str")):
        raise Unfit(REFUSED, f"would use {kind} as a class when loaded")
    if not is_mapping(state):
        check_plain(machine, (state,))
    return Dummy(kind, () if state is None else (state,))


def _new(machine: Any, args: tuple[Any, ...]) -> Any:
    return machine.make(arguments(args, 1)[0], args[1:])


def _new_with_names(machine: Any, args: tuple[Any, ...]) -> Any:
    kind, inner, named = arguments(args, 3)[:3]
    return machine.make_with_names(kind, inner, named)


def _attribute(machine: Any, args: tuple[Any, ...]) -> Any:
    """Return an attribute of a class, as pickles name methods and, in Python 3.11, members of enums."""
    kind, name = arguments(args, 2)[:2]
    if type(name) is not str or len(args) > 2 or not is_attribute(check_class(machine, kind), name):
        raise Unfit(
            REFUSED, f"would run builtins.getattr on {kind if isinstance(kind, Name) else 'a value'} when loaded"
        )
    return Fixed(Name(kind.module, f"{kind.name}.{name}"))


def _random(machine: Any, args: tuple[Any, ...]) -> Any:
    """Return a generator of NumPy. Its functions call what they are given, so that must be one of NumPy's, too."""
    for each in args:
        name = each.name if isinstance(each, Dummy) else each
        if type(name) is not str and not (isinstance(name, Name) and name.module.startswith("numpy.random.")):
            raise Unfit(REFUSED, f"would call {name if isinstance(name, Name) else 'a value'} when loaded")
    return Dummy(RANDOM)


def _partial(machine: Any, args: tuple[Any, ...]) -> Any:
    """Return a call that is kept for later, such as the optimizer of a Hydra config; the script will make it."""
    _check_callable_later(arguments(args, 1)[0])
    check_kept(args)
    return Dummy(PARTIAL, args)


def _check_callable_later(function: Any) -> None:
    if type(function) is not Name or function not in VALUES or not function.module.startswith("torch."):
        raise Unfit(REFUSED, f"would keep {function if isinstance(function, Name) else 'a value'} to be called later")


def _set_partial(machine: Any, made: Dummy, state: Any) -> None:
    """Check a state that may change what a kept call calls."""
    if type(state) not in (tuple, Arguments) or len(state) != 4:
        raise damaged("a kept call without its function")
    function, inner, named, own = state
    _check_callable_later(function)
    if type(inner) is not tuple or not (named is None or is_mapping(named)) or own:
        raise Unfit(REFUSED, "would change what is called later")
    made["<state>"] = state


def _enum(machine: Any, args: tuple[Any, ...]) -> None:
    if len(args) != 1:
        raise Unfit(REFUSED, "would make a new enum when loaded")
    check_plain(machine, args)


def _of(module: str, calls: dict[str, Rebuild]) -> dict[Name, Rebuild]:
    return {Name(module, name): function for name, function in calls.items()}


def _member_of(name: Name) -> Rebuild:
    def member(machine: Any, args: tuple[Any, ...]) -> Any:
        _enum(machine, args)
        return Fixed(name)

    return member


ARRAYS: dict[str, Rebuild] = {"_reconstruct": arrays.array, "scalar": arrays.scalar}
REBUILT: dict[Name, Rebuild] = {
    **tensors.CALLS,
    **{name: _member_of(name) for name in ENUMS},
    **_of("torch._tensor", {"_rebuild_from_type": tensors.from_type, "_rebuild_from_type_v2": tensors.from_type}),
    **_of("torch.nn.parameter", {"Parameter": tensors.wrapped, "Buffer": tensors.wrapped}),
    **_of("torch", {"Size": _size}),
    **_of("_codecs", {"encode": _bytes}),
    **_of("collections", {"OrderedDict": _ordered, "defaultdict": _default, "Counter": _ordered, "deque": _bag}),
    **_of("builtins", {"set": _set, "frozenset": _set, "bytearray": _bytes, "bytes": _bytes, "getattr": _attribute}),
    **_of("numpy", {"dtype": arrays.dtype}),
    **_of("numpy.core.multiarray", ARRAYS),
    **_of("numpy._core.multiarray", ARRAYS),
    **_of("numpy.core.numeric", {"_frombuffer": arrays.from_buffer}),
    **_of("numpy._core.numeric", {"_frombuffer": arrays.from_buffer}),
    **_of("numpy.random._pickle", dict.fromkeys(RANDOM_CONSTRUCTORS, _random)),
    **_of("numpy.random.bit_generator", {"__pyx_unpickle_SeedSequence": arrays.seeds}),
    **_of("functools", {"partial": _partial}),
    **_of("copyreg", {"_reconstructor": _reconstructed, "__newobj__": _new, "__newobj_ex__": _new_with_names}),
}
STATES = {PARTIAL: _set_partial, Name("numpy", "dtype"): arrays.set_dtype, arrays.NDARRAY: arrays.set_array}
