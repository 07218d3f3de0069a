"""Writes the copy of a log in files of bounded size, and removes files in its middle when it grows too long.

What a job prints decides how much is written here. The beginning shows how the run was set up, the end how it ended, so
these are kept.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from rung.runner.files.log_file import MOST_SEGMENTS, SEGMENT_BYTES, segment_path, segment_starts

# How much longer a file may get, so that it ends with a line.
LINE_BYTES = 1 << 20


class LogWriter:
    """Appends to a log; it serves one thread."""

    def __init__(self, path: Path, segment: int = SEGMENT_BYTES, most: int = MOST_SEGMENTS) -> None:
        self._path, self._segment, self._most = path, segment, most
        self._file: IO[bytes] | None = None
        self._start = self._size = 0

    def open_at(self, length: int) -> None:
        """Open the log to append at this place; cut off what is beyond it."""
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        for start in segment_starts(self._path)[1:]:
            if start >= length:
                segment_path(self._path, start).unlink(missing_ok=True)
        self._open(segment_starts(self._path)[-1])
        if self._start + self._size < length:
            self._open(length)  # the file with this place was removed
        self._truncate(length - self._start)

    def append(self, pieces: Sequence[bytes]) -> None:
        """Write pieces of the log; after an OSError call `open_at` before the next."""
        held: list[bytes] = []
        size = self._size
        for piece in pieces:
            held.append(piece)
            size += len(piece)
            if size >= self._segment and (piece.endswith(b"\n") or size >= self._segment + LINE_BYTES):
                self._write(b"".join(held))
                self._open(self._start + self._size)
                self._drop_middle()
                held, size = [], 0
        if held:
            self._write(b"".join(held))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, start: int) -> None:
        self.close()
        self._file = segment_path(self._path, start).open("ab", buffering=0)
        self._start, self._size = start, self._file.tell()

    def _truncate(self, size: int) -> None:
        assert self._file is not None, "it is open"
        self._file.truncate(size)
        self._size = size

    def _write(self, data: bytes) -> None:
        assert self._file is not None, "it is open"
        view = memoryview(data)
        # A full disk may accept a part and refuse the next write.
        while view:
            view = view[self._file.write(view) :]
        self._size += len(data)

    def _drop_middle(self) -> None:
        starts = segment_starts(self._path)
        for start in starts[1 : len(starts) - self._most + 1]:
            segment_path(self._path, start).unlink(missing_ok=True)


def last_segment(path: Path) -> Path:
    """Return the file of a log that is written now."""
    return segment_path(path, segment_starts(path)[-1])


def log_length(path: Path) -> int:
    """Return the length of a whole log, with what is left out."""
    start = segment_starts(path)[-1]
    return start + segment_path(path, start).stat().st_size


def append_line(path: Path, text: str) -> None:
    """Append a line to a log, unless it is its last one already."""
    line = f"{text}\n".encode()
    with last_segment(path).open("a+b") as log:
        end = log.seek(0, os.SEEK_END)
        log.seek(max(0, end - len(line) - 1))
        last = log.read()
        if last != line and not last.endswith(b"\n" + line):
            log.write(line if not last or last.endswith(b"\n") else b"\n" + line)


def flush_to_disk(path: Path) -> None:
    """Wait until the end of a log is on the disk."""
    with last_segment(path).open("ab") as log:
        log.flush()
        os.fsync(log.fileno())
