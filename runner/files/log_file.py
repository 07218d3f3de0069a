"""Reads the log of an attempt on this machine; engines copy the logs of their hosts here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rung.jobs.model.errors import EngineError
from rung.recovery.logs.lines import Line, LineSplitter

CHUNK = 1024 * 1024


def read_log(path: Path, offset: int, size: int) -> bytes:
    """Return at most `size` bytes of a log; nothing if there is no log yet."""
    try:
        with path.open("rb") as log:
            log.seek(offset)
            return log.read(size)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise EngineError(f"{path}: cannot be read: {error.strerror}") from None


def read_lines(path: Path) -> Iterator[Line]:
    """Yield every line of a log, the last one also without an end."""
    splitter, offset = LineSplitter(), 0
    while chunk := read_log(path, offset, CHUNK):
        offset += len(chunk)
        yield from splitter.feed(chunk)
    yield from splitter.flush()
