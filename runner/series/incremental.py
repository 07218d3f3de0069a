"""Reads the series of running attempts again and again, each time only the bytes that are new."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from stat import S_ISREG

from rung.jobs.model.paths import AttemptPaths
from rung.recovery.series.point import Row
from rung.runner.series.file_format import MAX_BYTES, Parsed, parse, parse_more
from rung.runner.series.write import NO_LINK

# Of all attempts together, about 1 kB each. No series has more than half of them.
MOST_ROWS = 50_000


@dataclass(frozen=True)
class _Known:
    """What was read of a file, and the last of its complete lines: where it still stands, the lines before it do."""

    # Device and inode, and the time of the last change.
    identity: tuple[int, int]
    changed: int
    size: int
    # Of the complete lines.
    offset: int
    last_line: bytes
    rows: tuple[Row, ...]


@dataclass
class IncrementalReader:
    """Keeps the rows of the series that were read last. A file that was replaced or cut is read anew."""

    most_rows: int = MOST_ROWS
    _known: OrderedDict[AttemptPaths, _Known] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def rows(self, paths: AttemptPaths, *, keep: bool) -> tuple[Row, ...] | None:
        """Return the rows of a series; None: there is none, or it is damaged. `keep`: it will be asked for again."""
        with self._lock:
            known = self._known.get(paths)
        found = _read(paths, known)
        with self._lock:
            self._known.pop(paths, None)
            if keep and found is not None:
                self._known[paths] = found
            while sum(len(each.rows) for each in self._known.values()) > self.most_rows:
                self._known.popitem(last=False)
        return found.rows if found is not None else None


def _read(paths: AttemptPaths, known: _Known | None) -> _Known | None:
    try:
        file = os.open(paths.series, os.O_RDONLY | NO_LINK)
    except OSError:
        return None
    try:
        found = os.fstat(file)
        if not S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
            return None
        if known is not None and known.identity == (found.st_dev, found.st_ino):
            if (known.changed, known.size) == (found.st_mtime_ns, found.st_size):
                return known
            more = _read_more(file, found, known) if found.st_size > known.size else None
            if more is not None:
                return more
        data = os.pread(file, found.st_size, 0)
        return _with(None, found, data, parse(data))
    except OSError:
        return None
    finally:
        os.close(file)


def _read_more(file: int, found: os.stat_result, known: _Known) -> _Known | None:
    """Return what is known of a file that has grown, its last line read again; None: it is not as it was."""
    start = known.offset - len(known.last_line)
    data = os.pread(file, found.st_size - start, start)
    if not known.rows or not data.startswith(known.last_line):
        return None
    data = data[len(known.last_line) :]
    return _with(known, found, data, parse_more(data, len(known.rows), known.rows[-1]))


def _with(known: _Known | None, found: os.stat_result, data: bytes, parsed: Parsed) -> _Known | None:
    """Return what is known with the bytes after it; None: they are damaged."""
    if not parsed.whole:
        return None
    offset, rows = (known.offset, known.rows) if known is not None else (0, ())
    last_line = data[data.rfind(b"\n", 0, max(0, parsed.size - 1)) + 1 : parsed.size]
    return _Known(
        identity=(found.st_dev, found.st_ino),
        changed=found.st_mtime_ns,
        size=offset + len(data),
        offset=offset + parsed.size,
        last_line=last_line or (known.last_line if known is not None else b""),
        rows=(*rows, *parsed.rows),
    )
