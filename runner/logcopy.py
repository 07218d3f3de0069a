"""Owns the copy of one attempt's log on this machine, and the cursor that says how much of the original is in it.

The original can be asked for from a moment on, no finer. So the cursor is a moment and how many entries from it on are
here already; a new stream begins at the moment and leaves so many out. Nothing is lost and nothing comes twice, however
often the link, the engine or the controller end in between: what the file has beyond the cursor is cut off and read
again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import IO

from jobs.paths import AttemptPaths
from runner.logstream import Entry

GAP = b"rung: lines are missing here: the host had thrown them away before they could be read\n"


@dataclass
class Cursor:
    """How far the copy has come."""

    length: int = 0
    # The moment to ask from; None: from the beginning, as long as the host's clock is behind where it once was.
    since: int | None = None
    # Entries from that moment on which are in the copy.
    count: int = 0
    total: int = 0
    latest: int = -1

    def pass_over(self, at: int) -> None:
        """Count one more entry."""
        self.total += 1
        if at > self.latest:
            # Nothing before has this time or a later one.
            self.since, self.count, self.latest = at, 1, at
        elif at == self.latest and self.since is not None:
            self.count += 1
        else:
            # The host's clock was set back: no moment tells the old from the new, so all are counted.
            self.since, self.count = None, self.total


class LogCopy:
    """The copy of one attempt's log; it serves one thread."""

    def __init__(self, paths: AttemptPaths) -> None:
        self._paths = paths
        self._cursor = _load(paths)
        self._leave_out = self._cursor.count
        self._first = True
        self._saved = self._cursor.length

    @property
    def since(self) -> str | None:
        """Return the moment to ask the log from, as the engine wants it."""
        at = self._cursor.since
        return None if at is None else f"{at // 10**9}.{at % 10**9:09d}"

    @property
    def unsaved(self) -> bool:
        return self._cursor.length != self._saved

    def begin(self) -> None:
        """Be ready for a new stream that begins at `since`; what was taken beyond the cursor is cut off."""
        self._leave_out, self._first = self._cursor.count, True
        self._paths.folder.mkdir(parents=True, exist_ok=True)
        with self._paths.log.open("ab") as log:
            log.truncate(self._cursor.length)

    def take(self, entries: Iterable[Entry]) -> None:
        """Add what a stream has brought."""
        new: list[bytes] = []
        for each in entries:
            if self._first:
                self._first = False
                if self._leave_out and self._cursor.since is not None and each.at != self._cursor.since:
                    new.append(GAP)
                    self._leave_out = 0
            if self._leave_out:
                self._leave_out -= 1
                continue
            self._cursor.pass_over(each.at)
            new.append(each.piece)
        if new:
            data = b"".join(new)
            with self._paths.log.open("ab") as log:
                log.write(data)
            self._cursor.length += len(data)

    def note(self, text: str) -> None:
        """Add a line of our own at the end of the copy; no stream may follow it."""
        with self._paths.log.open("ab") as log:
            log.write(f"{text}\n".encode())

    def save(self) -> None:
        """Write the cursor down; until then a new start reads again what came since the last time."""
        draft = self._paths.cursor.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self._cursor)), encoding="ascii")
        draft.rename(self._paths.cursor)
        self._saved = self._cursor.length

    def finish(self) -> None:
        """Make sure that the copy outlives this machine's power: the original is about to go."""
        self._paths.folder.mkdir(parents=True, exist_ok=True)
        with self._paths.log.open("ab") as log:
            _flush(log)
        self.save()


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _load(paths: AttemptPaths) -> Cursor:
    """Return where an earlier controller came to; a cursor that promises more than the file has begins anew."""
    try:
        cursor = Cursor(**json.loads(paths.cursor.read_bytes()))
        if cursor.length <= paths.log.stat().st_size:
            return cursor
    except (OSError, ValueError, TypeError):
        pass
    return Cursor()
