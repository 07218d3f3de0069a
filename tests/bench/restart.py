"""Measures how long a new controller takes until it attends to all jobs again, beside logs of this length.

Every job prints its log as fast as it can, and then a line five times a second. The controller is killed when all
cursors are near the ends of their logs. A job is attended to when the store has a step that it printed after that.
The peer reads the same logs from their starts, as a controller does that has no cursors; one log stands for all.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rung.jobs.job import Attempt
from rung.jobs.model.paths import HomePaths
from rung.runner.log_reading.cursor import cursor_path
from rung.runner.log_reading.watch import FEW_CURSOR_BYTES, MOST_CURSOR_SECONDS
from tests import pace
from tests.bench.controller import START_SECONDS, Home, add_copies
from tests.bench.logs import cpu, read_all
from tests.runner.log_reading.watched import attempt_paths

# A training that prints much; the line has a step, so that its curves are long too.
FILLING = """
import os, time
line = b"step %d loss %.4f lr 1e-4 grad_norm %.3f " + b"-- " * 60 + b"\\n"
step = size = 0
while size < {size}:
    size += os.write(1, b"".join(line % (n, 2 + n % 7 / 10, 1 + n % 3 / 10) for n in range(step, step + 500)))
    step += 500
while True:
    os.write(1, b"step %d loss 1.5 lr 1e-4 grad_norm 1.0\\n" % step)
    step += 1
    time.sleep(0.2)
"""


def main(options: Sequence[str] = ()) -> None:
    asked = {word.partition("=")[0]: word.partition("=")[2] for word in options}
    jobs, megabytes = int(asked.get("--jobs", "20")), int(asked.get("--megabytes", "20"))
    folder = Path(tempfile.mkdtemp(prefix="rung-bench-", dir=asked.get("--folder")))
    home = Home(folder, slots=5000)
    print(f"a new controller beside {jobs} jobs with a log of {megabytes} MB each")
    try:
        home.start()
        print(f"  printed and read for the first time in {_fill(home, jobs, megabytes):.0f} s")
        print(f"  {_restart(home)}")
        print(f"  {_from_the_start(home, jobs)}")
    finally:
        home.close()
        shutil.rmtree(folder, ignore_errors=True)


def attempts(home: Home) -> list[Attempt]:
    store = home.store()
    try:
        return [attempt for job in store.jobs(active=True) for attempt in store.attempts(job.id)[-1:]]
    finally:
        store.close()


def logs(home: Home) -> list[Path]:
    paths = HomePaths(home.folder / "home")
    return [paths.attempt(each.job_id, each.number).log for each in attempts(home)]


def steps(home: Home) -> list[int]:
    return [each.furthest_step or 0 for each in attempts(home)]


def _fill(home: Home, jobs: int, megabytes: int) -> float:
    """Start the jobs; return after how many seconds all logs are long and read."""
    began = time.monotonic()
    run = [sys.executable, "-I", "-S", "-c", FILLING.format(size=megabytes << 20)]
    add_copies(home, home.job_file("filler", run, recovery={"stalled": "off"}), jobs)
    pace.until(lambda: _are_read(home, jobs, megabytes << 20), START_SECONDS, every=1)
    filled = time.monotonic() - began
    # The next cursor comes when a few bytes are new and some time has passed.
    pace.until(lambda: all(_behind(log) < 2 * FEW_CURSOR_BYTES for log in logs(home)), 4 * MOST_CURSOR_SECONDS, every=1)
    return filled


def _are_read(home: Home, jobs: int, size: int) -> bool:
    found = [log.stat().st_size if log.exists() else 0 for log in logs(home)]
    return len(found) == jobs and min(found) >= size and _is_current(home)


def _is_current(home: Home) -> bool:
    """Tell whether the store has a step of each job that was printed a moment ago."""
    return all(step >= last - 50 for step, last in zip(steps(home), map(_last_step, logs(home)), strict=True))


def _last_step(log: Path) -> int:
    with log.open("rb") as opened:
        opened.seek(max(0, log.stat().st_size - 4096))
        return int(opened.read().splitlines()[-2].split()[1])


def _behind(log: Path) -> int:
    """Return how much of a log comes after its cursor."""
    path = cursor_path(log)
    if not path.exists():
        return log.stat().st_size
    return log.stat().st_size - int(json.loads(path.read_bytes().partition(b"\n")[0])["offset"])


def _restart(home: Home) -> str:
    assert home.controller is not None
    os.kill(home.controller.pid, signal.SIGKILL)
    home.controller.wait()
    behind, last = max(map(_behind, logs(home))), [_last_step(log) + 1 for log in logs(home)]
    began = time.monotonic()
    home.start()
    times: list[float] = []
    while len(times) < len(last):
        time.sleep(0.05)
        attended = sum(step >= wanted for step, wanted in zip(steps(home), last, strict=True))
        times += [time.monotonic() - began] * (attended - len(times))
    return (
        f"killed and started again, at most {behind / 1e3:.0f} kB after a cursor: half of the jobs are attended to "
        f"after {times[len(times) // 2]:.1f} s, all of them after {times[-1]:.1f} s; {home.cpu():.1f} CPU s"
    )


def _from_the_start(home: Home, jobs: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        paths = attempt_paths(Path(folder))
        shutil.copy(logs(home)[0], paths.log)
        taken = cpu(lambda: read_all(paths))
    return f"without cursors: {taken:.1f} CPU s for each log, {jobs * taken:.0f} for all of them"
