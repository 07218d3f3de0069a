"""Turns the persistent ids of torch.save, which stand for storages, into places for their numbers."""

from __future__ import annotations

from typing import Any

from rung_inside.verify.pickles.objects import Arguments, Name
from rung_inside.verify.pickles.opcodes import LongText, damaged
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
MODULES = ("torch", "torch.cuda", "torch.storage")


def storage_of(pid: Any, known: dict[str, Storage]) -> Any:
    """Return the storage of a persistent id; the same one for the same key."""
    if type(pid) not in (tuple, Arguments) or len(pid) < 2 or type(pid[1]) is not Name:
        raise _unknown()
    if pid[0] == "module" and all(type(each) in (str, LongText, type(None)) for each in pid[2:]):
        return pid[1]  # the format before torch 1.6 keeps the source of a class beside it
    if len(pid) not in (5, 6) or pid[0] != "storage" or pid[1].module not in MODULES or type(pid[3]) is not str:
        raise _unknown()
    dtype = STORAGES.get(pid[1].name)
    if dtype is None or (len(pid) == 6 and pid[5] is not None):
        raise _unknown()
    key, count = pid[2], pid[4]
    if type(key) is not str or type(count) is not int:
        raise damaged("a storage without a key or a size")
    if key not in known:
        known[key] = Storage(dtype, count)
    return known[key]


def _unknown() -> Unfit:
    return Unfit(UNVERIFIED, "holds a storage of an unknown kind")
