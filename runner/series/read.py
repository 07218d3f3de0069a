"""Reads the curves of an attempt: from the file that the controller has written, or from the log if there is none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import AttemptPaths
from rung.recovery.series.point import QUANTITIES, Point, Row
from rung.recovery.series.thinning import LIMIT, Series, thinned
from rung.runner.files.log_file import CHUNK, LogFile
from rung.runner.series.file_format import HEAD, line_of, parse
from rung.runner.series.write import PRIVATE, read_bounded

if TYPE_CHECKING:
    from rung.jobs.spec.recovery_spec import Rule


@dataclass(frozen=True)
class AttemptSeries:
    """The curves of one attempt."""

    rows: tuple[Row, ...] = ()

    def thin(self, limit: int) -> AttemptSeries:
        """Return the same curves, made of rows for at most `limit` points."""
        return AttemptSeries(tuple(thinned(self.rows, limit)))

    def points(self, limit: int = LIMIT) -> list[Point]:
        """Return at most `limit` points, in the order they came: the lowest and the highest loss of each few readings.

        The other numbers of a point are extremes of the same readings.
        """
        return [point for row in thinned(self.rows, limit) for point in row.points()]

    def curve(self, quantity: str, limit: int = LIMIT) -> list[tuple[int, float]]:
        """Return one of QUANTITIES over the steps: the lowest and the highest of each few readings, at their steps."""
        field = QUANTITIES.index(quantity)
        found: list[tuple[int, float]] = []
        for row in thinned(self.rows, limit):
            pair = row.extremes[field]
            if pair is not None:
                found += pair.values()
        return found


def attempt_series(paths: AttemptPaths, rules: Sequence[Rule] = (), *, ended: bool = False) -> AttemptSeries:
    """Return the curves of an attempt; none if neither its series nor its log can be read.

    `rules`: those of the job file. `ended`: nobody writes it any more, so one that had to be rebuilt is kept.
    """
    stored = stored_series(paths)
    if stored is not None:
        return stored
    rows = rebuilt(paths, rules)
    if ended and rows:
        _keep(paths, rows)
    return AttemptSeries(tuple(rows))


def stored_series(paths: AttemptPaths) -> AttemptSeries | None:
    """Return the curves of an attempt from its file; None: only its log can tell."""
    data = read_bounded(paths)
    parsed = parse(data) if data is not None else None
    return AttemptSeries(tuple(parsed.rows)) if parsed is not None and parsed.whole else None


def rebuilt(paths: AttemptPaths, rules: Sequence[Rule] = ()) -> list[Row]:
    """Return the rows of an attempt from its whole log, as the controller made them, but without their times."""
    # Imported only here: few attempts have no series any more, and these take long to load.
    from rung.recovery.detect.detector import Detector
    from rung.recovery.detect.scan import Scan

    series, log = Series(), LogFile(paths.log)
    scan = Scan(Detector(rules, None, on_numbers=series.add, on_readings=series.add_many))
    try:
        while chunk := log.read(CHUNK):
            scan.feed(chunk)
    except EngineError:
        return []
    scan.finish()
    return series.rows


def _keep(paths: AttemptPaths, rows: Sequence[Row]) -> None:
    """Put a rebuilt series in its place, for the next reader; without it the next one reads the log again."""
    draft = paths.series.with_name(f".{paths.series.name}.{os.getpid()}")
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
        with os.fdopen(file, "wb") as opened:
            opened.write(HEAD + b"".join(line_of(index, row) for index, row in enumerate(rows)))
        draft.rename(paths.series)
    except OSError:
        draft.unlink(missing_ok=True)
