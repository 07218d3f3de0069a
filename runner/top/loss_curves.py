"""Draws the loss of each job as a row of blocks, from the series that the controller writes; reads no log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rung.jobs.job import Attempt
from rung.jobs.model.paths import AttemptPaths, HomePaths
from rung.runner.report.curves import own_run
from rung.runner.series.incremental import IncrementalReader
from rung.runner.series.read import AttemptSeries
from rung.runner.views.timeline import draw_curves

WIDTH = 10
# Of an attempt; the whole run is drawn with WIDTH blocks.
POINTS = 200
# The files of hundreds of long jobs are read bit by bit, so that the newest numbers never wait for them.
TURN_SECONDS = 0.3

Points = list[tuple[int, float]]
Stamp = tuple[int, int]


@dataclass
class LossCurves:
    """The losses of the attempts that are shown, each read again only when its file has changed."""

    paths: HomePaths
    clock: Callable[[], float] = time.monotonic
    # Whether some files were left for the next turn.
    behind: bool = False
    _read: dict[tuple[str, int], tuple[Stamp, Points]] = field(default_factory=dict)
    _growing: IncrementalReader = field(default_factory=IncrementalReader)
    _until: float = 0.0

    def begin_turn(self) -> None:
        self._until, self.behind = self.clock() + TURN_SECONDS, False

    def draw(self, attempts: Sequence[Attempt]) -> str:
        """Return the loss of the run that counts, without what a resume threw away."""
        points = {each.number: self._points(each) for each in attempts}
        return draw_curves([[value for _, value in own_run(attempts, points)]], WIDTH)[0]

    def _points(self, attempt: Attempt) -> Points:
        key = (attempt.job_id, attempt.number)
        paths = self.paths.attempt(*key)
        stamp, (seen, points) = _stamp(paths), self._read.get(key, (None, []))
        if stamp is None or stamp == seen:
            return points if stamp else []
        if self.clock() > self._until:
            self.behind = True
            return points
        rows = self._growing.rows(paths, keep=attempt.ended_at is None)
        points = AttemptSeries(rows).curve("loss", POINTS) if rows is not None else []
        self._read[key] = stamp, points
        return points


def _stamp(paths: AttemptPaths) -> Stamp | None:
    """Return what changes when a series grows; None: there is no file."""
    try:
        found = paths.series.lstat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
