"""Turns the persistent ids of torch.save, which stand for storages, into places for their numbers."""

from __future__ import annotations

from typing import Any

from rung_inside.verify.pickles.objects import Name
from rung_inside.verify.pickles.opcodes import damaged
from rung_inside.verify.stored.tensor import Storage
from rung_inside.verify.stored.verdict import UNVERIFIED, Unfit

# The storage classes of torch, with the type of their numbers.
STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "UntypedStorage": "uint8", "_UntypedStorage": "uint8",
    "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128",
    "QUInt8Storage": "quint8", "QInt8Storage": "qint8", "QInt32Storage": "qint32",
    "QUInt4x2Storage": "quint4x2", "QUInt2x4Storage": "quint2x4",
}  # fmt: skip


def storage_of(pid: Any, known: dict[str, Storage]) -> Any:
    """Return the storage of a persistent id; the same one for the same key."""
    if isinstance(pid, tuple) and len(pid) > 1 and pid[0] == "module":
        return pid[1]  # the format before torch 1.6 keeps the source of a class beside it
    if not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] != "storage" or not isinstance(pid[1], Name):
        raise Unfit(UNVERIFIED, "holds a storage of an unknown kind")
    dtype = STORAGES.get(pid[1].name)
    if dtype is None or (len(pid) == 6 and pid[5] is not None):
        raise Unfit(UNVERIFIED, "holds a storage of an unknown kind")
    key, count = pid[2], pid[4]
    if type(key) is not str or type(count) is not int:
        raise damaged("a storage without a key or a size")
    if key not in known:
        known[key] = Storage(dtype, count)
    return known[key]
