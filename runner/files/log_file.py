"""Reads the log of an attempt on this machine; engines copy the logs of their hosts here.

A log is the file `log`. A copy that grows long goes on in files beside it, `log.START`, where START is the place in the
whole log at which the file begins. When it grows too long, files in its middle are removed (log_writer.py). A reader
sees one log, with a line where some of it is left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from rung.jobs.model.errors import EngineError
from rung.recovery.logs.lines import Line, LineSplitter

CHUNK = 1024 * 1024
# A copy never takes more than this: the first file, and the last ones. A training that prints ten lines of 100 bytes a
# second for ten days stays below it.
SEGMENT_BYTES, MOST_SEGMENTS = 64 << 20, 16
LEFT_OUT = "rung: {count} bytes are left out here, because the log is longer than {most}\n"
_START = re.compile(r"[1-9][0-9]{0,18}")


class LogFile:
    """A log and the place up to which it has been read."""

    def __init__(self, path: Path, offset: int = 0, *, in_line: bool = False) -> None:
        self._path, self._first = path, str(path)
        # The place in the whole log, and where the file begins that is read now.
        self._offset, self._start = offset, 0
        self._in_line = in_line

    @property
    def offset(self) -> int:
        """Return the place in the whole log up to which it has been read."""
        return self._offset

    @property
    def in_line(self) -> bool:
        """Tell whether what was read last ends within a line."""
        return self._in_line

    @property
    def path(self) -> Path:
        return self._path

    @property
    def is_in_last_file(self) -> bool:
        """Tell whether the file that is read now is too short to be followed by another one."""
        return 0 < self._offset - self._start < SEGMENT_BYTES

    @property
    def behind(self) -> int:
        """Return how many bytes of the log are not read yet."""
        last = segment_starts(self._path)[-1]
        try:
            return max(0, last + segment_path(self._path, last).stat().st_size - self._offset)
        except OSError:
            return 0

    def before(self, size: int) -> bytes:
        """Return the bytes before the place, at most `size`, as far as they are in the same file."""
        start = max(each for each in segment_starts(self._path) if each < max(1, self._offset))
        first = max(start, self._offset - size)
        try:
            return _slice(segment_path(self._path, start), first - start, self._offset - first)
        except OSError:
            return b""

    def read(self, size: int) -> bytes:
        """Return the next bytes of the log, at most `size`; nothing if there are none yet."""
        data = self._read(size)
        if data:
            return data
        starts = segment_starts(self._path)
        self._start = max(start for start in starts if start <= self._offset)
        # A file is complete once there is a next one, so what is missing now was removed.
        data = self._read(size)
        later = [start for start in starts if start > self._offset]
        return data or (self._skip_to(later[0]) if later else b"")

    def _read(self, size: int) -> bytes:
        path = segment_path(self._path, self._start) if self._start else self._first
        try:
            data = _slice(path, self._offset - self._start, size)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise EngineError(f"{path}: cannot be read: {error.strerror}") from None
        if data:
            self._offset += len(data)
            self._in_line = not data.endswith(b"\n")
        return data

    def _skip_to(self, start: int) -> bytes:
        """Go on at a later file; return the line that says so."""
        # Imported only here: it comes with archives and hashes, and few logs are so long.
        from rung.runner.files.tree import size_text

        text = LEFT_OUT.format(count=start - self._offset, most=size_text(SEGMENT_BYTES * MOST_SEGMENTS))
        line = f"\n{text}" if self._in_line else text
        self._offset = self._start = start
        self._in_line = False
        return line.encode()


def _slice(path: Path | str, start: int, size: int) -> bytes:
    """Return these bytes of a file. A file object takes four times as long as reading the few lines of most slices."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(file, size, start)
    finally:
        os.close(file)


def read_lines(path: Path) -> Iterator[Line]:
    """Yield every line of a log, the last one also without an end."""
    splitter, log = LineSplitter(), LogFile(path)
    while chunk := log.read(CHUNK):
        yield from splitter.feed(chunk)
    yield from splitter.flush()


def is_complete(path: Path) -> bool:
    """Tell whether nothing is left out of a log: each of its files begins where the one before it ends."""
    end = 0
    for start in segment_starts(path):
        if start != end:
            return False
        try:
            end = start + segment_path(path, start).stat().st_size
        except OSError:
            return start == 0
    return True


def segment_path(path: Path, start: int) -> Path:
    """Return the file of a log that begins at this place."""
    return path.with_name(f"{path.name}.{start}") if start else path


def segment_starts(path: Path) -> list[int]:
    """Return where the files of a log begin, in order; the first is always among them."""
    prefix = f"{path.name}."
    try:
        names = [name.name.removeprefix(prefix) for name in path.parent.iterdir() if name.name.startswith(prefix)]
    except OSError:
        names = []
    return [0, *sorted(int(name) for name in names if _START.fullmatch(name))]
