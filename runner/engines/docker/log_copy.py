"""Keeps the copy of one attempt's log on this machine, and a cursor for how much of the original is in it.

The engine can only send a log from a moment on. So the cursor is a moment and the number of entries from then on that
are here already; a new stream begins at that moment and skips so many. Nothing is lost and nothing comes twice, however
often the connection, the engine or the controller end in between: what the file has beyond the cursor is cut off and
read again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.docker.log_stream import Entry
from rung.runner.files.log_writer import LogWriter, append_line, flush_to_disk, log_length

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
    # The original was read to its end.
    complete: bool = False

    def copy(self) -> Cursor:
        return replace(self, anchors=[list(anchor) for anchor in self.anchors])

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

    def __init__(self, paths: AttemptPaths, writer: LogWriter | None = None) -> None:
        self._paths = paths
        self._writer = writer or LogWriter(paths.log)
        self._cursor = _load(paths)
        self._to_skip, self._first = 0, True
        self._saved = self._cursor.length

    @property
    def since(self) -> str | None:
        """Return the moment to request the log from, in the engine's form."""
        anchor = self._cursor.anchor
        return f"{anchor[0] // 10**9}.{anchor[0] % 10**9:09d}" if anchor else None

    @property
    def unsaved(self) -> bool:
        return self._cursor.length != self._saved

    @property
    def complete(self) -> bool:
        """Tell whether the original was read to its end."""
        return self._cursor.complete

    @property
    def is_empty(self) -> bool:
        return self._cursor.total == 0

    def begin(self) -> None:
        """Prepare for a new stream that begins at `since`; cut off what is beyond the cursor."""
        anchor = self._cursor.anchor
        self._to_skip, self._first = self._cursor.total - (anchor[1] if anchor else 0), True
        self._cursor.complete = False
        self._writer.open_at(self._cursor.length)

    def end(self) -> None:
        """Close the file at the end of a stream."""
        self._writer.close()

    def take(self, entries: Iterable[Entry]) -> None:
        """Append the entries that a stream has brought. After an OSError begin again: nothing of them counts then."""
        cursor, to_skip, first = self._cursor.copy(), self._to_skip, self._first
        new: list[bytes] = []
        for each in entries:
            if first:
                first = False
                if cursor.anchor is not None and each.at != cursor.anchor[0]:
                    new.append(GAP)
                    to_skip = 0
            if to_skip:
                to_skip -= 1
                continue
            cursor.count(each.at)
            new.append(each.piece)
        # The cursor moves only when the data is written. A full disk must not make it skip what is not here.
        if new:
            self._writer.append(new)
            cursor.length += sum(map(len, new))
        self._cursor, self._to_skip, self._first = cursor, to_skip, first

    def append_note(self, text: str) -> None:
        """Append a line from Rung to the copy, unless it is there already; no stream may follow it."""
        self._paths.folder.mkdir(parents=True, exist_ok=True)
        append_line(self._paths.log, text)

    def save(self) -> None:
        """Save the cursor; the next controller reads again everything after it."""
        draft = self._paths.cursor.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self._cursor)), encoding="ascii")
        draft.rename(self._paths.cursor)
        self._saved = self._cursor.length

    def finish(self, *, complete: bool) -> None:
        """Flush the copy to the disk, because the original is about to be removed."""
        self._paths.folder.mkdir(parents=True, exist_ok=True)
        flush_to_disk(self._paths.log)
        self._cursor.complete = complete
        self.save()


def _load(paths: AttemptPaths) -> Cursor:
    """Load the cursor of an earlier controller; one that is longer than the log is dropped."""
    try:
        cursor = Cursor(**json.loads(paths.cursor.read_bytes()))
        if cursor.length <= log_length(paths.log):
            return cursor
    except (OSError, ValueError, TypeError):
        pass
    return Cursor()
