"""Copies the log of an attempt from the shared file system to this machine, from where the copy ends.

The copy has the same bytes as the original, so its length is the place to go on from, whoever ended in between.
"""

from __future__ import annotations

from rung.jobs.model.paths import AttemptPaths
from rung.runner.files.log_writer import LogWriter, append_line, flush_to_disk, log_length
from rung.runner.seams.remote import Files

# At most so much is read of one log before the others get their turn.
PORTION = 4 << 20
ENDS_EARLY = "rung: this log may lack its last lines: they were not on the shared file system when the job had ended"


class SiteLog:
    """The copy of one attempt's log; it serves one thread."""

    def __init__(self, paths: AttemptPaths, writer: LogWriter | None = None) -> None:
        self._paths, self._writer = paths, writer or LogWriter(paths.log)

    @property
    def length(self) -> int:
        try:
            return log_length(self._paths.log)
        except FileNotFoundError:
            return 0

    def copy(self, files: Files, original: str, size: int) -> bool:
        """Copy what the original has beyond the copy, up to its known size; tell whether that was all of it."""
        have = self.length
        if size <= have:
            return True
        piece = files.read(original, have, min(PORTION, size - have))
        if not piece:
            return False
        self._writer.open_at(have)
        try:
            self._writer.append([piece])
        finally:
            self._writer.close()
        return have + len(piece) >= size

    def finish(self, *, complete: bool) -> None:
        """Write the copy to the disk; say so where the last lines may be missing."""
        if not self._paths.log.exists():
            self._paths.log.parent.mkdir(parents=True, exist_ok=True)
            self._paths.log.touch()
        if not complete:
            append_line(self._paths.log, ENDS_EARLY)
        flush_to_disk(self._paths.log)
