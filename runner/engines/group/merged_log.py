"""Merges the logs of the hosts of one attempt into its log, whole lines at a time.

The ranks have put their numbers in front of their lines already. What was merged is written before how much it is, so a
controller that was killed in between cuts it off and merges it again.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence

from rung.jobs.model.paths import AttemptPaths
from rung.runner.files.log_file import LogFile, segment_path, segment_starts
from rung.runner.files.log_writer import LogWriter

READ_BYTES = 1 << 20
# The lines of the leading host wait so long for those of the others, which may arrive later. The curve is that of its
# first rank: what another rank says of a step is to be known when the loss of that step is read.
HELD_SECONDS = 0.5


class MergedLog:
    """The log of an attempt, made of those of its parts, the leading one first; it serves one thread at a time."""

    def __init__(self, paths: AttemptPaths, parts: Sequence[AttemptPaths]) -> None:
        self._cursor, self._parts = paths.folder / "nodes" / "merged.json", [part.log for part in parts]
        self._writer = LogWriter(paths.log)
        self._length, self._offsets = self._load()
        # How long the log of the leading host was at which time.
        self._seen: list[tuple[float, int]] = []

    def _load(self) -> tuple[int, list[int]]:
        try:
            kept = json.loads(self._cursor.read_bytes())
            length, offsets = int(kept["length"]), [int(each) for each in kept["offsets"]]
            if len(offsets) == len(self._parts):
                return length, offsets
        except (OSError, ValueError, TypeError, KeyError):
            pass
        return 0, [0] * len(self._parts)

    def merge(self, now: float, *, to_end: bool = False) -> None:
        """Append what has come; `to_end`: nothing more will, so a last line without an end counts, too."""
        ends = self._ends(now, to_end=to_end)
        if not any(end > offset for end, offset in zip(ends, self._offsets, strict=True)):
            return
        self._writer.open_at(self._length)
        try:
            while self._append(ends, to_end=to_end):
                pass
        except OSError:
            # A full disk: what was written beyond the cursor is cut off when there is room again.
            self._length, self._offsets = self._load()
            raise
        finally:
            self._writer.close()

    def _ends(self, now: float, *, to_end: bool) -> list[int]:
        """Return up to where each part is read now."""
        first, *others = [
            offset + LogFile(part, offset).behind for part, offset in zip(self._parts, self._offsets, strict=True)
        ]
        # What an earlier controller has left is there from all of them.
        self._seen.append((now if self._seen else now - HELD_SECONDS, first))
        old = [place for place, (at, _) in enumerate(self._seen) if now - at >= HELD_SECONDS]
        held = self._seen[old[-1]][1] if old else 0
        self._seen = self._seen[old[-1] if old else 0 :]
        return [first if to_end else held, *others]

    def _append(self, ends: Sequence[int], *, to_end: bool) -> bool:
        """Append the next lines of all parts, of each in proportion to what it has; tell whether there were any."""
        waiting = [max(0, end - offset) for end, offset in zip(ends, self._offsets, strict=True)]
        most = max(waiting)
        sizes = [-(-READ_BYTES * each // most) if most > READ_BYTES else each for each in waiting]
        taken = [self._lines(number, size, to_end=to_end) for number, size in enumerate(sizes)]
        lines = list(_interleaved([lines for lines, _ in taken]))
        if not lines:
            return False
        self._writer.append(lines)
        self._length += sum(map(len, lines))
        self._offsets = [offset for _, offset in taken]
        draft = self._cursor.with_suffix(".draft")
        draft.write_text(json.dumps({"length": self._length, "offsets": self._offsets}), encoding="ascii")
        draft.rename(self._cursor)
        return True

    def _lines(self, number: int, size: int, *, to_end: bool) -> tuple[list[bytes], int]:
        """Return the next whole lines of a part, and the place after them."""
        offset = self._offsets[number]
        log = LogFile(self._parts[number], offset)
        data = log.read(size) if size else b""
        if not data:
            return [], offset
        # A bar ends each of its states by a carriage return.
        whole = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not whole and (to_end or len(data) == READ_BYTES):
            return [data + b"\n"], log.offset
        return data[:whole].splitlines(keepends=True), log.offset - len(data) + whole

    def remove_parts(self) -> None:
        """Remove the logs of the parts, which are in the log of the attempt now."""
        for log in self._parts:
            for start in segment_starts(log):
                segment_path(log, start).unlink(missing_ok=True)


def _interleaved(parts: Sequence[Sequence[bytes]]) -> Iterator[bytes]:
    """Yield the lines of all parts, so that each part is as far as the others at any place."""
    placed = [[((place + 1) / len(lines), line) for place, line in enumerate(lines)] for lines in parts]
    for _, line in heapq.merge(*placed, key=lambda each: each[0]):
        yield line
