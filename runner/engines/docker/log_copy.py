"""Keeps the copy of one attempt's log on this machine, and a cursor for how much of the original is in it.

The engine can only send a log from a moment on. So the cursor is a moment and the number of entries from then on that
are here already; a new stream begins at that moment and skips so many. Nothing is lost and nothing comes twice, however
often the connection, the engine or the controller end in between: what the file has beyond the cursor is cut off and
read again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import IO

from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.docker.log_stream import Entry

# Requested from a little earlier than needed: a clock that is set back by less than this hides nothing.
MARGIN = 60 * 10**9
STEP = 10 * 10**9
GAP = b"rung: lines are missing here: the host had thrown them away before they could be read\n"


@dataclass
class Cursor:
    """How much of the log is in the copy."""

    length: int = 0
    # Entries in the copy, and the latest time among them.
    total: int = 0
    latest: int = -1
    # Moments to request from, oldest first, each with the number of entries before it. All of those are earlier, and
    # no later entry is.
    anchors: list[list[int]] = field(default_factory=list)

    def count(self, at: int) -> None:
        """Count one more entry."""
        anchors = self.anchors
        while anchors and anchors[-1][0] > at:
            # The host's clock was set back: from that moment on, the engine would leave this entry out.
            anchors.pop()
        if at > self.latest:
            self.latest = at
            if not anchors or at - anchors[-1][0] >= STEP:
                anchors.append([at, self.total])
            while len(anchors) > 1 and anchors[1][0] <= at - MARGIN:
                anchors.pop(0)
        self.total += 1

    @property
    def anchor(self) -> list[int] | None:
        """Return the moment to request from and the number of entries before it; None: from the beginning."""
        return self.anchors[0] if self.anchors and self.anchors[0][0] <= self.latest - MARGIN else None


class LogCopy:
    """The copy of one attempt's log; it serves one thread."""

    def __init__(self, paths: AttemptPaths) -> None:
        self._paths = paths
        self._cursor = _load(paths)
        self._to_skip, self._first = 0, True
        self._saved = self._cursor.length
        self._file: IO[bytes] | None = None

    @property
    def since(self) -> str | None:
        """Return the moment to request the log from, in the engine's form."""
        anchor = self._cursor.anchor
        return f"{anchor[0] // 10**9}.{anchor[0] % 10**9:09d}" if anchor else None

    @property
    def unsaved(self) -> bool:
        return self._cursor.length != self._saved

    def begin(self) -> None:
        """Prepare for a new stream that begins at `since`; cut off what is beyond the cursor."""
        anchor = self._cursor.anchor
        self._to_skip, self._first = self._cursor.total - (anchor[1] if anchor else 0), True
        self.end()
        self._paths.folder.mkdir(parents=True, exist_ok=True)
        self._file = self._paths.log.open("ab", buffering=0)
        self._file.truncate(self._cursor.length)

    def end(self) -> None:
        """Close the file at the end of a stream."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def take(self, entries: Iterable[Entry]) -> None:
        """Append the entries that a stream has brought."""
        new: list[bytes] = []
        for each in entries:
            if self._first:
                self._first = False
                if self._cursor.anchor is not None and each.at != self._cursor.anchor[0]:
                    new.append(GAP)
                    self._to_skip = 0
            if self._to_skip:
                self._to_skip -= 1
                continue
            self._cursor.count(each.at)
            new.append(each.piece)
        if new:
            self._write(b"".join(new))

    def _write(self, data: bytes) -> None:
        assert self._file is not None, "a stream has begun"
        view = memoryview(data)
        # A full disk may accept a part and refuse the next write; the cursor counts only what was written completely.
        while view:
            view = view[self._file.write(view) :]
        self._cursor.length += len(data)

    def append_note(self, text: str) -> None:
        """Append a line from Rung to the copy, unless it is there already; no stream may follow it."""
        line = f"{text}\n".encode()
        with self._paths.log.open("a+b") as log:
            log.seek(max(0, log.tell() - len(line)))
            if log.read() != line:
                log.write(line)

    def save(self) -> None:
        """Save the cursor; the next controller reads again everything after it."""
        draft = self._paths.cursor.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self._cursor)), encoding="ascii")
        draft.rename(self._paths.cursor)
        self._saved = self._cursor.length

    def finish(self) -> None:
        """Flush the copy to the disk, because the original is about to be removed."""
        self._paths.folder.mkdir(parents=True, exist_ok=True)
        with self._paths.log.open("ab") as log:
            _flush(log)
        self.save()


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _load(paths: AttemptPaths) -> Cursor:
    """Load the cursor of an earlier controller; one that is longer than the file is dropped."""
    try:
        cursor = Cursor(**json.loads(paths.cursor.read_bytes()))
        if cursor.length <= paths.log.stat().st_size:
            return cursor
    except (OSError, ValueError, TypeError):
        pass
    return Cursor()
