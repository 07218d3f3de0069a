"""Maps files into memory for reading, so that a check needs no memory for the size of a file."""

from __future__ import annotations

import mmap
import os
import stat
from dataclasses import dataclass
from typing import Any

from rung_inside.verify.stored.verdict import UNREADABLE, Unfit


@dataclass(frozen=True)
class Window:
    """A part of a file. Nothing reads beyond its end."""

    buffer: Any
    start: int
    length: int

    def part(self, at: int, length: int) -> Window:
        """Return a part of this window; the caller has checked that it lies inside."""
        assert min(at, length) >= 0 and at + length <= self.length, "a part lies inside its window"
        return Window(self.buffer, self.start + at, length)

    def read(self, at: int, count: int) -> bytes:
        """Return a copy of some bytes; fewer at the end of the window."""
        first = self.start + min(max(at, 0), self.length)
        return bytes(self.buffer[first : min(first + count, self.start + self.length)])


def map_file(path: str, *, follow: bool = True) -> Window:
    """Map a regular file. A pipe or a device is refused without waiting for it; so is a link, unless `follow`."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    handle = os.open(path, flags)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Unfit(UNREADABLE, f"{os.path.basename(path)} is not a regular file")
        if status.st_size == 0:
            return Window(b"", 0, 0)
        # Shared and read-only: such memory is the file's own and does not count as memory of this process.
        return Window(mmap.mmap(handle, 0, access=mmap.ACCESS_READ), 0, status.st_size)
    finally:
        os.close(handle)


def read_small(path: str, most: int) -> bytes:
    """Return a whole file in a folder, if it is no larger than `most`."""
    window = map_file(path, follow=False)
    if window.length > most:
        raise Unfit(UNREADABLE, f"{os.path.basename(path)} is larger than {most} bytes")
    return window.read(0, window.length)
