"""What the calls stand for that make tensors, and what their arguments may be.

torch does not check the places that sparse and nested tensors name, so these are checked here when their numbers are
known: torch would read and write memory that belongs to something else.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

from rung_inside.verify.pickles.arrays import NDARRAY
from rung_inside.verify.pickles.keeping import check_attributes, check_kept, check_plain, is_mapping
from rung_inside.verify.pickles.objects import Arguments, Dummy, Name, Ordered
from rung_inside.verify.pickles.opcodes import damaged
from rung_inside.verify.pickles.permissions import MADE, TABLE
from rung_inside.verify.stored.tensor import CHUNK, ITEM_BYTES, MOST_DIMENSIONS, Storage, StoredTensor
from rung_inside.verify.stored.verdict import CORRUPT, REFUSED, UNVERIFIED, Unfit

Rebuild = Callable[[Any, "tuple[Any, ...]"], Any]
UTILS = "torch._utils"
TYPES = frozenset(
    name for name in TABLE if name == Name("torch", "Tensor") or name.name in ("DTensor", "Parameter", "Buffer")
)


def arguments(args: tuple[Any, ...], least: int) -> tuple[Any, ...]:
    if len(args) < least:
        raise damaged("a call without its arguments")
    return args


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor, also one that has no numbers here."""
    return isinstance(value, StoredTensor) or (isinstance(value, Dummy) and value.name in CALLS)


def _check_hooks(values: Sequence[Any]) -> None:
    """Refuse functions that a tensor would call; torch.save writes none."""
    if any(
        not (type(each) in (Ordered, dict, bool, type(None)) and not (each and each is not True)) for each in values
    ):
        raise Unfit(REFUSED, "holds a tensor that would call functions")


def tensor(machine: Any, args: tuple[Any, ...]) -> StoredTensor:
    storage, offset, size, stride = arguments(args, 4)[:4]
    if not isinstance(storage, Storage):
        raise damaged("a tensor without a storage")
    _check_hooks(args[4:6])
    _check_facts(args[6:])
    return StoredTensor(storage, offset, size, stride)


def typed_tensor(machine: Any, args: tuple[Any, ...]) -> StoredTensor:
    storage, offset, size, stride, _, _, dtype = arguments(args, 7)[:7]
    if not isinstance(storage, Storage) or not isinstance(dtype, Name) or dtype.name not in ITEM_BYTES:
        raise damaged("a tensor without a storage or a type")
    _check_hooks(args[4:6])
    _check_facts(args[7:])
    return StoredTensor(storage, offset, size, stride, dtype.name)


def _check_facts(values: Sequence[Any]) -> None:
    """Check what is known about the numbers of a tensor, such as that they are conjugated."""
    for facts in values:
        if facts is not None and not (is_mapping(facts) and all(type(each) is bool for each in facts.values())):
            raise Unfit(REFUSED, "holds a tensor with facts that torch.save does not write")


def wrapped(machine: Any, args: tuple[Any, ...]) -> Any:
    """Return the tensor that a parameter or a buffer wraps."""
    inner = arguments(args, 1)[0]
    if not is_tensor(inner):
        raise Unfit(REFUSED, "would make a parameter of something that is no tensor")
    check_kept(args[1:])
    _check_hooks(args[2:3])
    for state in args[3:]:
        _check_state(state)
    return inner


def moved(machine: Any, args: tuple[Any, ...]) -> Any:
    """Return a tensor that is made from a tensor or an array and moved to its device."""
    inner = arguments(args, 1)[0]
    if not is_tensor(inner) and not (isinstance(inner, Dummy) and inner.name == NDARRAY):
        raise Unfit(REFUSED, "would move something that is no tensor")
    check_plain(machine, args[1:])
    return inner


def quantized(machine: Any, args: tuple[Any, ...]) -> Dummy:
    if not isinstance(arguments(args, 7)[0], Storage):
        raise damaged("a tensor without a storage")
    check_plain(machine, args[1:6])
    _check_hooks(args[6:7])
    _check_channels(args[2], args[4])
    return Dummy(Name(UTILS, "_rebuild_qtensor"), args)


def _check_channels(size: Any, facts: Any) -> None:
    """Check that there are as many scales as channels; an old torch does not."""
    if type(size) is not tuple or type(facts) is not tuple or len(facts) not in (3, 4):
        raise damaged("a tensor with scales of an unknown kind")
    if len(facts) == 4:
        axis, counts = facts[3], [len(each) if type(each) is list else _count(each) for each in facts[1:3]]
        if type(axis) is not int or not 0 <= axis < len(size) or counts != [size[axis]] * 2:
            raise _outside()


def _count(value: Any) -> int:
    return value.numel() if isinstance(value, StoredTensor) else -1


def without_numbers(machine: Any, args: tuple[Any, ...]) -> Dummy:
    check_plain(machine, args)
    return Dummy(Name(UTILS, "_rebuild_meta_tensor_no_storage"))


def wrapper(machine: Any, args: tuple[Any, ...]) -> Dummy:
    """Return a tensor of a class that keeps other tensors, such as a distributed one."""
    _tensor_type(machine, arguments(args, 2)[0])
    check_plain(machine, args[1:])
    return Dummy(Name(UTILS, "_rebuild_wrapper_subclass"))


def _tensor_type(machine: Any, kind: Any) -> None:
    known = type(kind) is Name and (kind in TYPES or (kind not in TABLE and machine.names[kind] >= MADE))
    if not known:
        raise Unfit(REFUSED, f"would use {kind if isinstance(kind, Name) else 'a value'} as a class when loaded")


def from_type(machine: Any, args: tuple[Any, ...]) -> Any:
    """Return a tensor that one of the functions here makes, which then gets attributes."""
    function, kind, inner, state = arguments(args, 4)[:4]
    _tensor_type(machine, kind)
    if type(function) is not Name or function not in CALLS or type(inner) not in (tuple, Arguments):
        raise Unfit(REFUSED, f"would call {function if isinstance(function, Name) else 'a value'} when loaded")
    _check_state(state)
    made = CALLS[function](machine, inner)
    if isinstance(made, Dummy) and state is not None:
        made["<state>"] = state
    return made


def _check_state(state: Any) -> None:
    """Check the attributes that a tensor gets; its own are not among them."""
    parts = state if type(state) is tuple and len(state) == 2 else (state,)
    for part in parts:
        if part is None:
            continue
        if not is_mapping(part) or not all(type(key) is str and not key.startswith("__") for key in part):
            raise Unfit(REFUSED, "holds a tensor with attributes that torch.save does not write")
        check_attributes(part)


def sparse(machine: Any, args: tuple[Any, ...]) -> Dummy:
    layout, data = arguments(args, 2)[:2]
    name = layout.name if isinstance(layout, Name) else ""
    if isinstance(layout, Dummy) and layout.get("<args>"):
        name = str(layout["<args>"][0]).rpartition(".")[2]
    check = {"sparse_coo": _coordinates, "sparse_csr": _compressed, "sparse_csc": _compressed}.get(name)
    if check is None or type(data) is not tuple or len(data) < 3:
        raise Unfit(UNVERIFIED, "holds a sparse tensor of a kind that cannot be checked here")
    *tensors, size = data if name != "sparse_coo" else data[:3]
    known = type(size) is tuple and all(type(side) is int for side in size)
    if not known or not all(isinstance(each, StoredTensor) for each in tensors):
        raise Unfit(UNVERIFIED, "holds a sparse tensor of a kind that cannot be checked here")
    check_plain(machine, data[3:] if name == "sparse_coo" else ())
    machine.later.append(lambda: check(tensors, size, name))
    return Dummy(Name(UTILS, "_rebuild_sparse_tensor"), (data,))


def _coordinates(tensors: Sequence[StoredTensor], size: Sequence[int], name: str) -> None:
    """Check that every coordinate of a sparse tensor lies inside it."""
    indices, values = tensors
    if len(indices.size) != 2 or not values.size or indices.size[1] != values.size[0]:
        raise _outside()
    sparse_sides = indices.size[0]
    if not sparse_sides <= len(size) <= MOST_DIMENSIONS or tuple(size[sparse_sides:]) != values.size[1:]:
        raise _outside()
    for row in range(sparse_sides):
        at = indices.offset + row * indices.stride[0]
        _check_range(StoredTensor(indices.storage, at, indices.size[1:], indices.stride[1:], indices.dtype), size[row])


def _compressed(tensors: Sequence[StoredTensor], size: Sequence[int], name: str) -> None:
    if len(tensors) != 3 or len(size) != 2 or any(len(each.size) != 1 for each in tensors):
        raise Unfit(UNVERIFIED, "holds a sparse tensor of a kind that cannot be checked here")
    starts, places, values = tensors
    rows, columns = size if name == "sparse_csr" else reversed(size)
    if starts.size[0] != rows + 1 or places.size != values.size:
        raise _outside()
    _check_range(starts, values.size[0] + 1)
    _check_range(places, columns)


def _check_range(numbers: StoredTensor, end: int) -> None:
    if numbers.dtype not in ("int64", "int32"):
        raise _outside()
    for chunk in numbers.chunks() if numbers.numel() else ():
        if int(chunk.min()) < 0 or int(chunk.max()) >= end:
            raise _outside()


def nested(machine: Any, args: tuple[Any, ...]) -> Any:
    if len(args) != 4 or not all(isinstance(each, StoredTensor) for each in args):
        raise Unfit(UNVERIFIED, "holds a nested tensor of a kind that cannot be checked here")
    machine.later.append(lambda: _check_nested(*args))
    return args[0]


def _check_nested(numbers: StoredTensor, *places: StoredTensor) -> None:
    """Check that every part of a nested tensor lies inside its numbers."""
    sizes, strides, offsets = places
    if any(each.numel() > CHUNK or each.dtype != "int64" for each in places) or sizes.size != strides.size:
        raise _outside()
    if len(sizes.size) != 2 or offsets.size != sizes.size[:1] or numbers.stride not in ((1,), ()):
        raise _outside()
    rows = [[_list(each, row) for row in range(sizes.size[0])] for each in (sizes, strides)]
    for size, stride, offset in zip(*rows, _list(offsets)):  # noqa: B905 - Python 3.8
        last = offset + sum((side - 1) * step for side, step in zip(size, stride))  # noqa: B905
        if min((offset, *size, *stride)) < 0 or (0 not in size and last >= numbers.numel()):
            raise _outside()


def _list(numbers: StoredTensor, row: int | None = None) -> list[int]:
    at = numbers.offset + (0 if row is None else row * numbers.stride[0])
    count, step = numbers.size[-1], numbers.stride[-1]
    if not count:
        return []
    flat = numbers.storage.numbers(numbers.dtype, at, (count - 1) * step + 1)
    return [int(each) for each in flat[::step].tolist()] if step else [int(flat[0])] * count


def _outside() -> Unfit:
    return Unfit(CORRUPT, "a tensor names a place outside of it")


CALLS: dict[Name, Rebuild] = {
    Name(UTILS, name): function
    for function, names in (
        (tensor, "_rebuild_tensor _rebuild_tensor_v2"),
        (typed_tensor, "_rebuild_tensor_v3"),
        (wrapped, "_rebuild_parameter _rebuild_parameter_with_state"),
        (moved, "_rebuild_device_tensor_from_cpu_tensor _rebuild_device_tensor_from_numpy"),
        (nested, "_rebuild_nested_tensor"),
        (sparse, "_rebuild_sparse_tensor _rebuild_sparse_csr_tensor"),
        (quantized, "_rebuild_qtensor"),
        (without_numbers, "_rebuild_meta_tensor_no_storage"),
        (wrapper, "_rebuild_wrapper_subclass"),
    )
    for name in names.split()
}
