"""Says what may be kept where: in lists and dicts, as the key of a dict, as an attribute, as an argument of a call.

Python and the libraries call attributes of an object by their name (`append`, `keys`, `__setstate__`), and they take
whatever the state of the object has put there. So no such attribute may be something that can be called.
"""

from __future__ import annotations

from typing import Any, Iterable

from rung_inside.verify.pickles.objects import Arguments, Bag, Dummy, Fixed, Name, Ordered
from rung_inside.verify.pickles.opcodes import LongText, damaged
from rung_inside.verify.pickles.permissions import CALLED, DATA, DICTS, MADE, TABLE, VALUES
from rung_inside.verify.stored.tensor import StoredTensor
from rung_inside.verify.stored.verdict import REFUSED, Unfit

SCALARS = (str, int, float, bool, type(None), bytes, LongText)
# Attributes that Python, torch and NumPy call on what they take for a list, a dict, a text, a tensor or a module.
_CALLED_BY_NAME = (
    "append extend add update keys items values get setdefault pop popitem copy clear insert remove discard"
    " startswith endswith split strip decode encode forward detach clone requires_grad_ register_hook"
)
METHODS = frozenset(_CALLED_BY_NAME.split())
# The same as a key of a dict: these are hashed by what they hold, which is plain.
KEYS = DATA | {Name("torch.distributed.checkpoint.metadata", "MetadataIndex")}
DEEPEST = 4


def tuple_of(items: Iterable[Any]) -> tuple[Any, ...]:
    """Return a tuple, marked if it holds a global that may not be kept."""
    made = tuple(items)
    if any(type(each) is Arguments or (type(each) is Name and each not in VALUES) for each in made):
        return Arguments(made)
    return made


def check_kept(items: Iterable[Any]) -> None:
    """Refuse to keep a class or a function as a value, unless the exact list has it as one."""
    for each in items:
        if type(each) is Name and each not in VALUES:
            raise Unfit(REFUSED, f"would keep {each} to be called later")
        if type(each) is Arguments:
            check_kept(each)


def is_of_the_job(value: Any) -> bool:
    """Return whether a value is an object of a class of the job."""
    return type(value) is Dummy and value.name not in TABLE


def check_keys(machine: Any, keys: Iterable[Any]) -> None:
    """Refuse keys that library code would compare, and not only their data; also inside of tuples."""
    waiting, seen = list(keys), set()
    check_kept(waiting)
    while waiting:
        key = waiting.pop()
        if isinstance(key, Dummy) and not isinstance(key, Fixed) and key.name not in KEYS and not is_of_the_job(key):
            raise Unfit(REFUSED, f"would compare objects of {key.name} when loaded")
        if type(key) is tuple and id(key) not in seen:
            machine.charge(len(key))
            seen.add(id(key))
            waiting += key


def can_be_called(value: Any) -> bool:
    """Return whether a value is something that can be called, or an object that may answer for another one."""
    return isinstance(value, Name) or (isinstance(value, Dummy) and value.name not in DATA)


def check_attribute(key: Any, value: Any) -> None:
    """Refuse an attribute that library code would call."""
    if not can_be_called(value):
        return
    if type(key) is str and key not in METHODS and not (key.startswith("__") and key.endswith("__")):
        return
    if type(key) in (int, bool, type(None)):
        return
    raise Unfit(REFUSED, f"would replace {key[:100] if type(key) is str else 'a method'} of an object when loaded")


def check_attributes(state: dict[Any, Any]) -> None:
    for key, value in state.items():
        check_attribute(key, value)


def check_plain(machine: Any, values: Iterable[Any], depth: int = DEEPEST) -> None:
    """Refuse arguments that are anything but plain data."""
    for value in values:
        if type(value) in (tuple, list, Bag) and depth:
            machine.charge(len(value))
            check_plain(machine, value, depth - 1)
        elif not _is_plain(value):
            raise Unfit(REFUSED, f"would call something with {_word(value)} when loaded, and not with plain data")


def _is_plain(value: Any) -> bool:
    if type(value) is Name:
        return value in VALUES
    if isinstance(value, Dummy):
        return value.name in DATA
    return type(value) in SCALARS or isinstance(value, StoredTensor)


def _word(value: Any) -> str:
    name = value if isinstance(value, Name) else value.name if isinstance(value, Dummy) else None
    return str(name) if name else "a value of its own"


def check_items(target: Any, items: list[Any]) -> None:
    """Check items that are put into a list, a set, or an object of the job that is one."""
    check_kept(items)
    if not isinstance(target, list) and not is_of_the_job(target):
        raise _unchanging(target) if isinstance(target, (Name, Dummy)) else damaged("items for no list")


def check_pairs(machine: Any, target: Any, items: list[Any]) -> None:
    """Check keys and values that follow each other, and that are put into a dict or an object that is one."""
    if id(target) in machine.sealed:
        raise Unfit(REFUSED, "would change the attributes of an object when loaded")
    check_keys(machine, items[::2])
    check_kept(items[1::2])
    if isinstance(target, Dummy):
        if not is_of_the_job(target) and (target.name not in DICTS or isinstance(target, Fixed)):
            raise _unchanging(target)
        for key, value in zip(items[::2], items[1::2]):  # noqa: B905 - Python 3.8
            check_attribute(key, value)
    elif not isinstance(target, dict):
        raise _unchanging(target) if isinstance(target, Name) else damaged("items for a value that is no dict")


def _unchanging(target: Any) -> Unfit:
    name = target if isinstance(target, Name) else target.name
    return Unfit(REFUSED, f"would change {name} itself when loaded")


def check_class(machine: Any, kind: Any) -> Name:
    """Return a class that the pickle may make objects of."""
    if type(kind) is not Name or machine.names[kind] < MADE:
        raise Unfit(REFUSED, f"would use {kind if isinstance(kind, Name) else 'a value'} as a class when loaded")
    return kind


def check_call(machine: Any, name: Name, args: tuple[Any, ...]) -> None:
    """Check a call of what has no rule of its own: with plain data; a class of the job takes any data."""
    if machine.names[name] < CALLED:
        raise Unfit(REFUSED, f"would call {name} when loaded, and that is not known to be harmless")
    if name in TABLE:
        check_plain(machine, args)
    check_kept(args)


def check_making(machine: Any, name: Name, args: tuple[Any, ...]) -> None:
    """Check a new object of a class; the classes of Python itself read their arguments, so these are plain."""
    if machine.names[name] < MADE:
        raise Unfit(REFUSED, f"would make an object of {name} when loaded, and that is not known to be harmless")
    if name in TABLE and (machine.names[name] == CALLED or name.module == "builtins"):
        check_plain(machine, args)
    check_kept(args)


def is_mapping(value: Any) -> bool:
    """Return whether a value is a dict, and not an object that may only look like one."""
    return type(value) in (dict, Ordered)
