"""Reads the curves of a job for its page. A long log without a series is read in a thread, so that no page waits."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from rung.jobs.job import Attempt, Job
from rung.jobs.model.paths import AttemptPaths, HomePaths
from rung.jobs.spec.recovery_spec import Rule
from rung.runner.series.read import AttemptSeries, attempt_series, stored_series

# How much of all logs of a job is read while its page waits: about a quarter of a second.
AT_ONCE = 1 << 20
# The log of a running attempt without a series is read again so often, while somebody looks.
AGAIN_SECONDS = 30.0
KEPT = 64


@dataclass
class CurveReader:
    """What was read from logs, and the thread that reads the others, one after the other."""

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
            series, size = stored_series(place), _size(place)
            if series is None and size <= left:
                series, left = attempt_series(place, job.spec.recovery.rules, ended=ended), left - size
            if series is None:
                series = self._from_log(place, job.spec.recovery.rules, ended=ended)
            if series is None:
                being_read.append(attempt.number)
            found[attempt.number] = series or AttemptSeries()
        return found, being_read

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
                    self._kept[place] = (time.monotonic(), series)
                    if len(self._kept) > KEPT:
                        self._kept.popitem(last=False)


def _size(place: AttemptPaths) -> int:
    try:
        return place.log.stat().st_size
    except OSError:
        return 0
