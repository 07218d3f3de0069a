"""Reads .safetensors files (a length, a JSON header, raw numbers) without the package, which an image may lack."""

from __future__ import annotations

import json
import mmap
import os
import struct
from typing import Any, Iterator

from rung_inside.verify.verdict import CORRUPT, TRUNCATED, UNVERIFIED, Content, Unfit

DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
    "U16": "uint16", "U32": "uint32", "U64": "uint64",
}  # fmt: skip
# The bound of the package.
MOST_HEADER = 100_000_000


def read_safetensors(path: str, full: bool) -> Content:
    header, begin = _header(path)
    facts = header.pop("__metadata__", None) or {}
    size = os.path.getsize(path) - begin
    last = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if last > size:
        raise Unfit(TRUNCATED, f"{last - size} bytes of its numbers are missing")
    state = {key: int(value) for key, value in facts.items() if isinstance(value, str) and value.isdigit()}
    return Content("safetensors", _tensors(path, header, begin), state)


def _header(path: str) -> tuple[dict[str, Any], int]:
    with open(path, "rb") as file:
        raw = file.read(8)
        if len(raw) < 8:
            raise Unfit(TRUNCATED, "ends before its header")
        (length,) = struct.unpack("<Q", raw)
        if length > MOST_HEADER:
            raise Unfit(CORRUPT, "its header cannot be that long")
        text = file.read(length)
    if len(text) < length:
        raise Unfit(TRUNCATED, "ends within its header")
    try:
        header = json.loads(text)
        for name, entry in header.items():
            if name != "__metadata__":
                _check_entry(entry)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Unfit(CORRUPT, "its header is damaged") from None
    return header, 8 + length


def _check_entry(entry: Any) -> None:
    first, last = entry["data_offsets"]
    if not (isinstance(first, int) and isinstance(last, int) and 0 <= first <= last):
        raise ValueError("offsets")
    if not all(isinstance(side, int) and side >= 0 for side in entry["shape"]) or not isinstance(entry["dtype"], str):
        raise ValueError("shape")


def _tensors(path: str, header: dict[str, Any], begin: int) -> Iterator[tuple[str, Any]]:
    if not header:
        return
    with open(path, "rb") as file:
        # A private copy, because torch warns about read-only memory; nothing is written.
        numbers = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    for name, entry in header.items():
        yield name, _tensor(numbers, entry, begin, name)


def _tensor(numbers: Any, entry: dict[str, Any], begin: int, name: str) -> Any:
    import torch

    dtype = getattr(torch, DTYPES.get(entry["dtype"], ""), None)
    if dtype is None:
        raise Unfit(UNVERIFIED, f"{name} has the type {entry['dtype']}, which this torch does not know")
    first, last = entry["data_offsets"]
    count = 1
    for side in entry["shape"]:
        count *= side
    if count == 0:
        return torch.empty(0, dtype=dtype)
    if count * torch.empty(0, dtype=dtype).element_size() != last - first:
        raise Unfit(CORRUPT, f"{name} has {last - first} bytes, which is not what its shape needs")
    return torch.frombuffer(numbers, dtype=dtype, count=count, offset=begin + first)
