"""Measures how much sooner the curves of a long run are there from its series than from its log, in one run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rung.jobs.model.paths import AttemptPaths
from rung.recovery.logs.reading import Reading
from rung.runner.series.read import attempt_series, rebuilt
from rung.runner.series.write import SeriesWriter

POINTS = 1_000_000
# Reading the log is slow; a part of it is enough to know its speed.
LOG_POINTS = 50_000


def timed(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main(options: Sequence[str] = ()) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = AttemptPaths(Path(folder))
        record = "rung| step step={step} loss={loss} lr=0.001 grad_norm=1.5 scale=65536.0 skipped=0\n"
        paths.log.write_text("".join(record.format(step=n, loss=2 + n % 7 / 10) for n in range(LOG_POINTS)))
        log = timed(lambda: rebuilt(paths)) * POINTS / LOG_POINTS
        paths.log.write_text("")
        writer = SeriesWriter(paths, time.time)
        written = timed(lambda: _write(writer))
        opened = timed(lambda: attempt_series(paths).points())
        size = paths.series.stat().st_size
    print(f"The curves of a run of {POINTS:,} points; CPU time of one core")
    print(f"  from the log {log:.1f} s, from the series {opened:.3f} s: {log / opened:,.0f} x sooner (aim: 100)")
    print(
        f"  writing them takes {100 * written / log:.0f} % of reading the log (aim: 10), the file {size / 1e6:.1f} MB"
    )


def _write(writer: SeriesWriter) -> None:
    for step in range(POINTS):
        writer.add(step, Reading(loss=2 + step % 7 / 10, grad_norm=1.5, lr=0.001, scale=65536.0))
    writer.finish(live=True)


if __name__ == "__main__":
    main()
