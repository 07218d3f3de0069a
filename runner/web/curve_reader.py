"""Reads the curves of a job for its page. A long log without a series is read in a thread, so that no page waits."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rung.jobs.job import Attempt, Job
from rung.jobs.model.paths import AttemptPaths, HomePaths
from rung.jobs.spec.recovery_spec import Rule
from rung.runner.report.curves import LIMIT
from rung.runner.series.incremental import IncrementalReader
from rung.runner.series.read import AttemptSeries, attempt_series

# How much of all logs of a job is read while its page waits: about a quarter of a second.
AT_ONCE = 1 << 20
# The log of a running attempt without a series is read again so often, while somebody looks.
AGAIN_SECONDS = 30.0
KEPT = 128
# Inode, time of the last change and size of a file.
Version = tuple[int, int, int]
Found = TypeVar("Found")


@dataclass
class CurveReader:
    """What was read from logs, and the thread that reads the others, one after the other."""

    # Of files: which version, and its series as thin as the page draws it. An open page asks again every few seconds.
    _files: OrderedDict[AttemptPaths, tuple[Version, AttemptSeries]] = field(default_factory=OrderedDict)
    # Of files that grow: all that was read, so that only what is new is read.
    _growing: IncrementalReader = field(default_factory=IncrementalReader)
    # Of logs: when they were read, and their series.
    _kept: OrderedDict[AttemptPaths, tuple[float, AttemptSeries]] = field(default_factory=OrderedDict)
    _wanted: OrderedDict[AttemptPaths, tuple[Sequence[Rule], bool]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def of_job(
        self, job: Job, attempts: Sequence[Attempt], paths: HomePaths
    ) -> tuple[dict[int, AttemptSeries], list[int]]:
        """Return the series of the attempts as far as they are known, and the attempts whose logs are being read."""
        found: dict[int, AttemptSeries] = {}
        being_read, left = [], AT_ONCE
        for attempt in attempts:
            place, ended = paths.attempt(job.id, attempt.number), attempt.ended_at is not None
            series, size = self._from_file(place, ended=ended), _size(place)
            if series is None and size <= left:
                series, left = attempt_series(place, job.spec.recovery.rules, ended=ended), left - size
            if series is None:
                series = self._from_log(place, job.spec.recovery.rules, ended=ended)
            if series is None:
                being_read.append(attempt.number)
            found[attempt.number] = series or AttemptSeries()
        return found, being_read

    def _from_file(self, place: AttemptPaths, *, ended: bool) -> AttemptSeries | None:
        try:
            found = place.series.lstat()
        except OSError:
            return None
        version = (found.st_ino, found.st_mtime_ns, found.st_size)
        with self._lock:
            known = self._files.get(place)
            if known is not None and known[0] == version:
                self._files.move_to_end(place)
                return known[1]
        rows = self._growing.rows(place, keep=not ended)
        if rows is None:
            return None
        series = AttemptSeries(rows).thin(LIMIT)
        with self._lock:
            _keep(self._files, place, (version, series))
        return series

    def _from_log(self, place: AttemptPaths, rules: Sequence[Rule], *, ended: bool) -> AttemptSeries | None:
        """Return what the thread has read of a log, and let it read what it has not; None: it has nothing yet."""
        with self._lock:
            at, series = self._kept.get(place, (None, None))
            if at is None or (not ended and time.monotonic() - at > AGAIN_SECONDS):
                self._wanted.setdefault(place, (rules, ended))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._read_all, name="curves", daemon=True)
                    self._thread.start()
            return series

    def _read_all(self) -> None:
        while True:
            with self._lock:
                if not self._wanted:
                    self._thread = None
                    return
                place, (rules, ended) = next(iter(self._wanted.items()))
            series = AttemptSeries()
            try:
                series = attempt_series(place, rules, ended=ended)
            finally:
                # Also after an error, or every look would begin it again.
                with self._lock:
                    del self._wanted[place]
                    _keep(self._kept, place, (time.monotonic(), series))


def _keep(kept: OrderedDict[AttemptPaths, Found], place: AttemptPaths, found: Found) -> None:
    kept[place] = found
    kept.move_to_end(place)
    if len(kept) > KEPT:
        kept.popitem(last=False)


def _size(place: AttemptPaths) -> int:
    try:
        return place.log.stat().st_size
    except OSError:
        return 0
