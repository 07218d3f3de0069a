"""Reads .safetensors files (a length, a JSON header, raw numbers) without the package, which an image may lack."""

from __future__ import annotations

import json
import struct
from typing import Any, Iterator

from rung_inside.verify.stored.mapped_file import Window, map_file
from rung_inside.verify.stored.tensor import ITEM_BYTES, MOST_DIMENSIONS, MOST_NUMBERS, Storage, StoredTensor
from rung_inside.verify.stored.verdict import CORRUPT, TRUNCATED, UNVERIFIED, Content, Unfit

DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
    "U16": "uint16", "U32": "uint32", "U64": "uint64",
}  # fmt: skip
# The bound of the package.
MOST_HEADER = 100_000_000
MOST_DIGITS = 18


def read_safetensors(path: str, full: bool, *, follow: bool = True) -> Content:
    window = map_file(path, follow=follow)
    header, begin = _header(window)
    facts = header.pop("__metadata__", None) or {}
    numbers = window.part(begin, window.length - begin)
    last = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if last > numbers.length:
        raise Unfit(TRUNCATED, f"{last - numbers.length} bytes of its numbers are missing")
    state = {key: int(value) for key, value in facts.items() if _is_count(value)}
    return Content("safetensors", _tensors(numbers, header), state)


def _is_count(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= MOST_DIGITS


def _header(window: Window) -> tuple[dict[str, Any], int]:
    raw = window.read(0, 8)
    if len(raw) < 8:
        raise Unfit(TRUNCATED, "ends before its header")
    (length,) = struct.unpack("<Q", raw)
    if length > MOST_HEADER:
        raise Unfit(CORRUPT, "its header cannot be that long")
    if 8 + length > window.length:
        raise Unfit(TRUNCATED, "ends within its header")
    try:
        header = json.loads(window.read(8, length))
        if not isinstance(header.get("__metadata__") or {}, dict):
            raise ValueError("metadata")
        for name, entry in header.items():
            if name != "__metadata__":
                _check_entry(entry)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Unfit(CORRUPT, "its header is damaged") from None
    return header, 8 + length


def _check_entry(entry: Any) -> None:
    first, last = entry["data_offsets"]
    sides = entry["shape"]
    if not (type(first) is int and type(last) is int and 0 <= first <= last < MOST_NUMBERS):
        raise ValueError("offsets")
    if not isinstance(sides, list) or not all(type(side) is int and 0 <= side < MOST_NUMBERS for side in sides):
        raise ValueError("shape")
    if len(sides) > MOST_DIMENSIONS or not isinstance(entry["dtype"], str):
        raise ValueError("shape")


def _tensors(numbers: Window, header: dict[str, Any]) -> Iterator[tuple[str, StoredTensor]]:
    for name, entry in header.items():
        yield name[:300], _tensor(numbers, entry, name[:300])


def _tensor(numbers: Window, entry: dict[str, Any], name: str) -> StoredTensor:
    dtype = DTYPES.get(entry["dtype"])
    if dtype is None:
        raise Unfit(UNVERIFIED, f"{name} has the type {entry['dtype'][:20]}, which Rung does not know")
    first, last = entry["data_offsets"]
    count = 1
    for side in entry["shape"]:
        count *= side
    if count * ITEM_BYTES[dtype] != last - first:
        raise Unfit(CORRUPT, f"{name} has {last - first} bytes, which is not what its shape needs")
    storage = Storage(dtype, count)
    storage.place(numbers.part(first, last - first))
    return StoredTensor(storage, 0, (count,), (1,))
