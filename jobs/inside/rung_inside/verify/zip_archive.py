"""Reads the index of a zip archive of torch.save, and checks every size and place in it before anything else is read.

torch.save stores its files without compression, one after the other. An archive that does anything else is not one of
torch.save, and another program might read something else from it than this one.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Iterator

from rung_inside.verify.stored.mapped_file import Window
from rung_inside.verify.stored.verdict import CORRUPT, TRUNCATED, Unfit

MAGIC = b"PK\x03\x04"
END = struct.Struct("<4s4H2LH")
END_MAGIC = b"PK\x05\x06"
END64_LOCATOR_MAGIC = b"PK\x06\x07"
END64_LOCATOR = struct.Struct("<4sLQL")
END64 = struct.Struct("<4sQ2H2L4Q")
INDEX_ENTRY = struct.Struct("<4s4B4HL2L5H2L")
LOCAL = struct.Struct("<4s2B4HL2L2H")
# More entries than any checkpoint has storages.
MOST_ENTRIES = 1_000_000
FULL32 = 0xFFFFFFFF
ENCRYPTED = 1
# torch cuts a longer name off, and ends it at a zero byte.
LONGEST_NAME = 500
CHECKED_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Entry:
    """A file in the archive."""

    name: str
    header: int
    length: int
    checksum: int


def read_archive(window: Window) -> dict[str, Window]:
    """Return every file of an archive by its name."""
    return {entry.name: data for entry, data in _checked(window)}


def check_sums(window: Window) -> None:
    """Check the CRCs that torch.save writes and torch.load skips."""
    found = list(_checked(window))
    # torch.serialization.set_crc32_options(False) leaves them out.
    if all(entry.checksum == 0 for entry, data in found if data.length):
        return
    for entry, data in found:
        total = 0
        for at in range(0, data.length, CHECKED_AT_ONCE):
            total = zlib.crc32(data.read(at, CHECKED_AT_ONCE), total)
        if total != entry.checksum:
            raise Unfit(CORRUPT, f"checksum of {entry.name} does not match its bytes")


def _checked(window: Window) -> Iterator[tuple[Entry, Window]]:
    """Yield every entry with its bytes; no two of them share a name or a byte."""
    begin, length, count = _index(window)
    entries = list(_entries(window.part(begin, length), count))
    # torch looks for a file without regard to case, and takes any one of those that it finds.
    if len({entry.name.lower() for entry in entries}) < len(entries):
        raise Unfit(CORRUPT, "the archive has two files of one name")
    free = 0
    for entry in sorted(entries, key=lambda each: each.header):
        if entry.header < free:
            raise Unfit(CORRUPT, f"{entry.name} overlaps another file of the archive")
        start = _data_start(window, entry, begin)
        free = start + entry.length
        yield entry, window.part(start, entry.length)


def _index(window: Window) -> tuple[int, int, int]:
    """Return where the index is, its length and its number of entries."""
    at = window.length - END.size
    if at < 0 or not window.read(at, 4) == END_MAGIC:
        raise Unfit(TRUNCATED, "the archive has no end: it was not written to the last byte")
    _, disk, other, _, count, length, begin, comment = END.unpack(window.read(at, END.size))
    if comment:
        raise Unfit(CORRUPT, "the end of the archive is damaged")
    # torch.save writes the larger end also for small archives, and readers prefer it.
    if window.read(max(at - END64_LOCATOR.size, 0), 4) == END64_LOCATOR_MAGIC:
        at, count, length, begin = _large_index(window, at)
    elif disk or other:
        raise Unfit(CORRUPT, "the end of the archive is damaged")
    if begin + length != at or count > MOST_ENTRIES or count * INDEX_ENTRY.size > length:
        raise Unfit(CORRUPT, "the index of the archive is not where its end says")
    return begin, length, count


def _large_index(window: Window, end: int) -> tuple[int, int, int, int]:
    """Return the same from the larger end, which can describe more than 4 GiB, and where that end is."""
    raw = window.read(end - END64_LOCATOR.size, END64_LOCATOR.size)
    at = END64_LOCATOR.unpack(raw)[2] if len(raw) == END64_LOCATOR.size else 0
    raw = window.read(at, END64.size)
    if at + END64.size + END64_LOCATOR.size != end or raw[:4] != b"PK\x06\x06":
        raise Unfit(CORRUPT, "the end of the archive is damaged")
    count, length, begin = END64.unpack(raw)[7:]
    return at, count, length, begin


def _entries(index: Window, count: int) -> Iterator[Entry]:
    at = 0
    for _ in range(count):
        raw = index.read(at, INDEX_ENTRY.size)
        if len(raw) < INDEX_ENTRY.size or raw[:4] != b"PK\x01\x02":
            raise Unfit(CORRUPT, "the index of the archive is damaged")
        fields = INDEX_ENTRY.unpack(raw)
        flags, method, checksum, packed, length, name, extra, comment = *fields[5:7], *fields[9:15]
        header = fields[18]
        at += INDEX_ENTRY.size
        text = index.read(at, name)
        if FULL32 in (packed, length, header):
            packed, length, header = _large(index.read(at + name, extra), packed, length, header)
        at += name + extra + comment
        entry = Entry(text.decode("utf-8", "replace"), header, length, checksum)
        if name > LONGEST_NAME or not entry.name.isprintable():
            raise Unfit(CORRUPT, "the archive has a file with a name that torch.save does not write")
        if method or flags & ENCRYPTED or packed != length:
            raise Unfit(CORRUPT, f"{entry.name} is compressed, which torch.save never does")
        yield entry
    if at != index.length:
        raise Unfit(CORRUPT, "the index of the archive is damaged")


def _large(extra: bytes, packed: int, length: int, header: int) -> tuple[int, int, int]:
    """Return the sizes and the place of an entry that need more than 32 bits."""
    while len(extra) >= 4:
        kind, size = struct.unpack("<2H", extra[:4])
        inner, extra = extra[4 : 4 + size], extra[4 + size :]
        if kind == 1:
            given = [value for (value,) in struct.iter_unpack("<Q", inner[: len(inner) // 8 * 8])]
            wanted = [length, packed, header]
            for place, value in enumerate(wanted):
                if value == FULL32 and given:
                    wanted[place] = given.pop(0)
            return wanted[1], wanted[0], wanted[2]
    raise Unfit(CORRUPT, "the index of the archive is damaged")


def _data_start(window: Window, entry: Entry, end: int) -> int:
    """Return where the bytes of an entry start; its header may be padded differently from the index."""
    raw = window.read(entry.header, LOCAL.size)
    if len(raw) < LOCAL.size or raw[:4] != MAGIC:
        raise Unfit(CORRUPT, f"{entry.name} is not where the index of the archive says")
    fields = LOCAL.unpack(raw)
    method, name, extra = fields[4], fields[10], fields[11]
    start = entry.header + LOCAL.size + name + extra
    text = window.read(entry.header + LOCAL.size, name).decode("utf-8", "replace")
    if text != entry.name or method or start + entry.length > end:
        raise Unfit(CORRUPT, f"{entry.name} is not where the index of the archive says")
    return int(start)
