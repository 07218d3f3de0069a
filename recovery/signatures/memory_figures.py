"""Reads from an out-of-memory message how much a run needs at least, and how much there is for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SIZE = r"(\d[\d.]{0,20}) ?(bytes|[KMGT]i?B)"
_TRIED = re.compile(rf"[Tt]ried to allocate {_SIZE}|Unable to allocate {_SIZE} for an array")
# torch 2 first, then torch 1.
_ALLOCATED = re.compile(rf"{_SIZE} is allocated by PyTorch|{_SIZE} already allocated")
_FREE = re.compile(rf"of which {_SIZE} is free|{_SIZE} free;")
_KEPT = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_RESERVED = re.compile(rf"{_SIZE} reserved in total")
_ALLOWED = re.compile(rf"{_SIZE} allowed;")
_CAPACITY = re.compile(rf"total capacity of {_SIZE}|{_SIZE} total capacity")
_IN_HOST_MEMORY = re.compile(r"DefaultCPUAllocator|for an array")
_UNITS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40}


@dataclass(frozen=True)
class MemoryFigures:
    """Bytes: what a run had and asked for when memory ran out, and the most that it could have got."""

    needed: int
    available: int

    def largest_batch(self, batch: int) -> int:
        """Return the largest batch that may fit, where `batch` did not.

        A part of the memory does not depend on the batch: the weights, the state of the optimizer. So a smaller batch
        needs at least its share of `needed`, and a batch whose share alone does not fit cannot fit.
        """
        return (self.available * batch - 1) // self.needed


def read_memory_figures(message: str, host_limit: int | None) -> MemoryFigures | None:
    """Return the figures of a message; None if it has too few. `host_limit` is the limit of the host memory."""
    tried = _bytes(_TRIED, message)
    if not tried:
        return None
    if _IN_HOST_MEMORY.search(message):
        return MemoryFigures(tried, host_limit) if host_limit else None
    allocated, free = _bytes(_ALLOCATED, message), _bytes(_FREE, message)
    limits = [_bytes(_ALLOWED, message), _bytes(_CAPACITY, message)]
    if allocated is not None and free is not None:
        reserved = _bytes(_RESERVED, message)
        kept = reserved - allocated if reserved is not None else _bytes(_KEPT, message) or 0
        limits.append(allocated + max(0, kept) + free)
    known = [each for each in limits if each]
    return MemoryFigures(tried + (allocated or 0), min(known)) if known else None


def _bytes(pattern: re.Pattern[str], message: str) -> int | None:
    match = pattern.search(message)
    if match is None:
        return None
    number, unit = (group for group in match.groups() if group is not None)
    try:
        return int(float(number) * (1 << _UNITS[unit[0].lower()]))
    except ValueError:  # 1.2.3
        return None
