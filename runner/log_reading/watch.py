"""Reads the log of one attempt for faults and progress, a slice of time at a time, in bounded memory.

A log that grows faster than it can be read is sampled: all of it is searched for messages, and of the numbers only some
are read. A new controller goes on where a cursor stands, or reads the log from its start and comes to the same state.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rung.jobs.job import Job
from rung.jobs.model.fault import Fault, FaultKind
from rung.recovery.detect.detector import Detector
from rung.recovery.detect.scan import Scan
from rung.recovery.logs.tracker_links import TrackerLinks
from rung.recovery.monitors.fault_groups import FAILS_CLEAN_EXIT
from rung.runner.files.log_file import LogFile
from rung.runner.files.tree import size_text
from rung.runner.log_reading.cursor import Cursor, read_cursor, write_cursor
from rung.runner.log_reading.flood import Flood
from rung.runner.log_reading.state_codec import StateError, decode, encode
from rung.runner.series.write import SeriesState, SeriesWriter

# How long one log is read before others get their turn; a chunk of short lines takes about half of it.
READ_SECONDS = 0.05
CHUNK = 8 * 1024
# A log without its numbers is searched in larger pieces.
SKIM_CHUNK = 256 * 1024
# A log is long enough for a cursor when reading it again takes more than a third of a second.
CURSOR_FROM = 1 << 20
# A cursor is written when so many bytes have been read since the last one, or fewer of them after so many seconds:
# it takes about 2 ms, as long as reading 4 kB.
CURSOR_BYTES, CURSOR_SECONDS = 2 << 20, 2.0
FEW_CURSOR_BYTES, MOST_CURSOR_SECONDS = 16 * 1024, 30.0


class LogWatch:
    """Feeds the log of one attempt to a detector; one thread at a time may call it.

    `warns`: an early warning stops it, where the job says so; `warns_after`: only after this step. `series` is given
    the numbers for the curves of the attempt.
    """

    def __init__(
        self,
        log: Path,
        job: Job,
        *,
        warns: bool = True,
        warns_after: int = 0,
        series: SeriesWriter | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._steady, self._series = LogFile(log), steady, series
        # What was in the log before came at another time than it is read.
        self._live = not log.exists()
        warning = job.spec.recovery.early_warning
        if warning is not None and not warns:
            warning = warning.model_copy(update={"stop": False})
        rules = job.spec.recovery.rules
        take, take_many = (series.add, series.add_many) if series is not None else (None, None)
        # In a log from elsewhere `Killed` most likely means lack of memory. Here the control group reports that itself.
        self.detector = Detector(rules, warning, FaultKind.INFRA_FAULT, warns_after, take, take_many)
        self.mode = job.spec.knobs.mode
        # An early warning that must not stop a job must not fail it at its end either.
        self.fails_clean_exit = FAILS_CLEAN_EXIT
        if warning is not None and not warning.stop:
            self.fails_clean_exit -= {FaultKind.DIVERGENCE}
        self._links = TrackerLinks() if job.spec.trackers == "on" else None
        self._scan = Scan(self.detector, latched=self.fails_clean_exit)
        settings = (rules, warning, warns_after, sorted(self.fails_clean_exit), job.spec.trackers, series is None)
        self._settings = hashlib.sha256(repr(settings).encode()).hexdigest()
        self._flood = Flood()
        self._is_begun = self._told_sampling = self._told_series = False
        # How far the cursor is, and when it was written.
        self._kept_at, self._kept_when = 0, 0.0

    @property
    def fault(self) -> Fault | None:
        """Return the fault to act on while the attempt runs.

        The first one that decided stays, even if the numbers are better by now: a slow reader must come to the same
        decision as a quick one.
        """
        return self._scan.decided or self.detector.first_fault(ended=False)

    @property
    def decided(self) -> Fault | None:
        return self._scan.decided

    @property
    def offset(self) -> int:
        """Return how much of the log has been read."""
        return self._log.offset

    @property
    def links(self) -> tuple[str, ...]:
        """Return the links to the runs of the attempt in W&B and MLflow."""
        return self._links.found if self._links is not None else ()

    @property
    def is_flooded(self) -> bool:
        """Tell whether the log grows faster than it can be read."""
        return self._flood.is_flooded

    def new_series_note(self) -> str:
        """Return, once, why no curves are written any more; empty while they are."""
        note = self._series.note if self._series is not None and not self._told_series else ""
        self._told_series = self._told_series or bool(note)
        return note

    def new_sampling_note(self) -> str:
        """Return, once, that numbers of the log were left out, and how much of it; empty while all are read."""
        if self._told_sampling or not self._flood.skipped or self._flood.is_skipping:
            return ""
        self._told_sampling = True
        part = f"{size_text(self._flood.skipped)} of the first {size_text(self.offset)}"
        return (
            f"the log grows faster than it can be read: the numbers in {part} were sampled; faults were searched in all"
        )

    def read(self, seconds: float = READ_SECONDS) -> bool:
        """Read what is new in the log, for at most about so many seconds; True if there is more to read now."""
        self._begin()
        more = self._read_slice(seconds)
        if self._series is not None:
            self._series.write(live=self._live)
        self._live = self._live or not more
        self._keep_cursor()
        return more

    def read_to_end(self) -> None:
        """Read the rest of a log that no longer grows."""
        at = -1
        # Until a read brings nothing: after a damage of the disk a file that is not the last may be short.
        while self.read() or self.offset != at:
            at = self.offset
        self._scan.finish()
        if self._series is not None:
            self._series.finish(live=self._live)

    def _read_slice(self, seconds: float) -> bool:
        until = self._steady() + seconds
        while True:
            is_skipping = self._flood.is_skipping
            size = self._flood.bounded(self.offset, SKIM_CHUNK) if is_skipping else CHUNK
            chunk = self._log.read(size)
            if not chunk:
                self._flood.caught_up()
                return False
            if is_skipping:
                self._flood.count(self.offset, len(chunk))
                self._scan.skim(chunk)
            else:
                self._scan.feed(chunk)
            if self._links is not None:
                self._links.feed(chunk)
            if self._steady() >= until:
                self._flood.look(self.offset, self._log.behind)
                return True
            # Most reads are of a few lines; a second one only to see that there are no more costs as much.
            if len(chunk) < size and (self._log.is_in_last_file or not self._log.behind):
                self._flood.caught_up()
                return False

    # The cursor

    def _begin(self) -> None:
        """Go on from the cursor, if there is one that fits."""
        if self._is_begun:
            return
        self._is_begun = True
        self._kept_when = self._steady()
        cursor = read_cursor(self._log.path, self._settings)
        if cursor is not None and not self._go_on_from(cursor) and cursor.sampled and self._series is not None:
            self._series.begin_anew()

    def _go_on_from(self, cursor: Cursor) -> bool:
        if cursor.place is None:
            return False
        try:
            scan, links, series, skipped = decode(cursor.state, self._scan.outside())
        except StateError:
            return False
        if not isinstance(scan, Scan) or not isinstance(skipped, int):
            return False
        if self._series is not None:
            is_state = isinstance(series, SeriesState)
            if not is_state or not self._series.go_on_from(series, sampled=cursor.sampled):
                return False
        self._scan, self.detector, self._links = scan, scan.detector, links
        self._flood.skipped = skipped
        place = cursor.place
        self._log = LogFile(self._log.path, place.offset, in_line=place.in_line)
        self._kept_at = place.offset
        return True

    def _keep_cursor(self) -> None:
        """Write where the reading stands, if it has come far enough since the last time, or sampling begins."""
        new, passed = self.offset - self._kept_at, self._steady() - self._kept_when
        much = new >= CURSOR_BYTES and passed >= CURSOR_SECONDS
        long = new >= FEW_CURSOR_BYTES and passed >= MOST_CURSOR_SECONDS
        is_due = self.offset >= CURSOR_FROM and (much or long) and not self._flood.is_skipping
        if self._flood.begins or is_due:
            # A state that cannot be written is a bug, but no reason to stop reading.
            with suppress(StateError):
                self.keep_cursor()

    def keep_cursor(self) -> None:
        """Write where the reading stands, unless it is within a part that is being sampled."""
        if self._scan.is_skimming:
            return
        series = self._series.state if self._series is not None else None
        if self._series is not None and series is None:
            return
        state = (self._scan, self._links, series, self._flood.skipped)
        text = encode(state, self._scan.outside())
        write_cursor(self._log, self._settings, text, sampled=self._flood.has_begun)
        self._kept_at, self._kept_when = self.offset, self._steady()
