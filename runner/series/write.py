"""Writes the series of an attempt while its log is read: a small file beside the log that only grows.

A new controller reads the log from its start, or goes on with a kept state; what the file has already is counted and
not written again. So no point is lost or doubled wherever a controller was killed. A file that cannot be written is
given up: it is removed, and whoever asks for the series reads the log instead.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from stat import S_ISREG

from rung.jobs.model.paths import AttemptPaths
from rung.recovery.logs.reading import Reading, Readings
from rung.recovery.series.point import Row, columns_of, numbers_of
from rung.recovery.series.thinning import Thinner, count_of_row, readings_of
from rung.runner.files.log_file import is_complete
from rung.runner.series.file_format import HEAD, MAX_BYTES, line_of, lines_of, parse, parse_more

NO_LINK = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
PRIVATE = 0o600


@dataclass(frozen=True)
class SeriesState:
    """Where a writer is: how many readings it has taken, in how many rows of the file and in the row that is open.

    `size` and `check`: how much of the file these rows take, and its checksum.
    """

    taken: int = 0
    rows: int = 0
    thinner: Thinner | None = None
    note: str = ""
    size: int = 0
    check: int = 0


class SeriesWriter:
    """Takes the readings of one attempt and writes their rows, a few at a time. `note`: why it was given up."""

    def __init__(self, paths: AttemptPaths, now: Callable[[], float]) -> None:
        # A path is joined anew each time that it is asked for, and this file is written to with nearly every read.
        self._paths, self._file, self._now = paths, str(paths.series), now
        self._thinner: Thinner | None = None
        # Readings that are in the file already; the steps up to this one are, where the log is not complete any more.
        self._skip, self._after = 0, -1
        # How many rows the file has, and those that are still to be written.
        self._rows = self._readings = 0
        # How much of the file they take, and its checksum.
        self._size = self._check = 0
        self._waiting: list[Row] = []
        self._anew = False
        self._head = b""
        self.note = ""

    @property
    def state(self) -> SeriesState | None:
        """Return where it is; None: it cannot go on from here yet."""
        if self.note or self._thinner is None:
            return SeriesState(note=self.note)
        if self._after >= 0 or self._waiting:
            return None
        rest = self._thinner.rest()
        taken = self._readings + (rest.readings if rest else 0) - self._skip
        return SeriesState(taken, self._rows, self._thinner, size=self._size, check=self._check)

    def go_on_from(self, state: SeriesState, *, sampled: bool) -> bool:
        """Go on from a kept state; False: the file does not fit, and the log must be read from its start.

        `sampled`: what was read after it, is not read in the same way again, so its rows are made anew.
        """
        self.note = state.note
        if state.note or state.thinner is None:
            return True
        try:
            data = read_bounded(self._paths) or b""
            if zlib.crc32(data[: state.size]) != state.check or len(data) < state.size:
                return False
            # Only the rows after the place are parsed: a long run has thousands before it.
            rows, size = ([], state.size) if sampled else _whole_rows(data, state.size, state.rows)
            self._keep(data[:size])
        except OSError:
            return False
        self._rows = state.rows + len(rows)
        self._readings = readings_of(self._rows)
        self._skip = max(0, self._readings - state.taken)
        self._thinner = Thinner(self._rows) if self._skip else state.thinner
        return True

    def begin_anew(self) -> None:
        """Make all rows anew, since the log is read from its start, and in another way than before."""
        self._anew = is_complete(self._paths.log)

    def add(self, step: int, reading: Reading) -> None:
        """Take a reading of the log; nothing is written yet."""
        if self.note:
            return
        numbers = numbers_of(reading)
        if numbers is None:
            return
        if self._thinner is None:
            self._thinner = self._go_on()
        if self._skip or step <= self._after:
            self._skip = max(0, self._skip - 1)
            return
        self._after = -1
        row = self._thinner.add(step, numbers)
        if row is not None:
            self._waiting.append(row)

    def add_many(self, readings: Readings) -> None:
        """Take readings in a row, as `add` does one by one."""
        if self.note:
            return
        if self._skip or self._after >= 0 or self._thinner is None:
            for step, row in zip(readings.steps, readings.rows, strict=True):
                self.add(step, readings.read(row))
            return
        self._waiting += self._thinner.add_many(readings.steps, columns_of(readings))

    def write(self, *, live: bool) -> None:
        """Write the rows that are complete. `live`: their readings have just come, so the time is theirs."""
        if not self._waiting or self.note:
            return
        at = round(self._now(), 1) if live else None
        lines = lines_of(self._rows, self._waiting, at)
        self._readings += sum(row.readings for row in self._waiting)
        self._rows, self._waiting = self._rows + len(self._waiting), []
        try:
            new = self._head + lines
            self._append(new)
            self._size, self._check, self._head = self._size + len(new), zlib.crc32(new, self._check), b""
        except OSError as error:
            self._give_up(error)

    def finish(self, *, live: bool) -> None:
        """Write the rest of a log that no longer grows."""
        rest = self._thinner.rest() if self._thinner else None
        if rest is not None:
            self._waiting.append(rest)
        self.write(live=live)

    def _append(self, data: bytes) -> None:
        file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK, PRIVATE)
        try:
            written = os.write(file, data)
        finally:
            os.close(file)
        if written < len(data):
            raise OSError(errno.ENOSPC, "the disk is full")

    def _go_on(self) -> Thinner:
        """Keep the complete rows of a file that is there, and go on after them."""
        try:
            data = b"" if self._anew else read_bounded(self._paths) or b""
            rows, size = _whole_rows(data)
            self._keep(data[:size])
        except OSError as error:
            self._give_up(error)
            return Thinner()
        self._rows, self._readings = len(rows), sum(row.readings for row in rows)
        if is_complete(self._paths.log):
            self._skip = self._readings
        else:
            self._after = rows[-1].last_step if rows else -1
        return Thinner(len(rows))

    def _keep(self, data: bytes) -> None:
        """Keep these bytes at the beginning of the file, and nothing after them."""
        if data:
            self._cut(len(data))
        else:
            self._paths.series.unlink(missing_ok=True)
        self._size, self._check, self._head = len(data), zlib.crc32(data), b"" if data else HEAD

    def _cut(self, size: int) -> None:
        file = os.open(self._paths.series, os.O_WRONLY | NO_LINK)
        try:
            os.ftruncate(file, size)
        finally:
            os.close(file)

    def _give_up(self, error: OSError) -> None:
        self._waiting = []
        # One that cannot be removed either shows the points up to here.
        with suppress(OSError):
            self._paths.series.unlink(missing_ok=True)
        self.note = (
            f"{self._paths.series}: cannot be written: {error.strerror}; the job goes on, its curves come from the log"
        )


def _whole_rows(data: bytes, start: int = 0, count: int = 0) -> tuple[list[Row], int]:
    """Return the complete rows that follow so many, which end at `start`, and where they end."""
    rows, size, _ = parse_more(data[start:], count) if start else parse(data)
    last = count + len(rows) - 1
    if rows and rows[-1].readings < count_of_row(last):
        size -= len(line_of(last, rows.pop()))
    return rows, start + size


def read_bounded(paths: AttemptPaths) -> bytes | None:
    """Return the bytes of a series; None if there is no plain file, or none of a size that Rung writes."""
    try:
        file = os.open(paths.series, os.O_RDONLY | NO_LINK)
    except OSError:
        return None
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(file)
        return opened.read() if S_ISREG(found.st_mode) and found.st_size <= MAX_BYTES else None
