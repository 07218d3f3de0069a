"""Measures the reading of logs: short lines, a restart beside a long log, and a log that grows too fast.

Each figure comes with that of a peer in the same run: a loop of plain Python over the same lines, and ripgrep.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rung.jobs.job import Job
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.log_reading.cursor import cursor_path
from rung.runner.log_reading.watch import LogWatch
from rung.runner.series.write import SeriesWriter
from tests.bench.speed import write_log

TYPICAL = 1 << 20
LONG = 40 << 20
# A job that prints so many bytes a second, for so long, and then its fault.
RATE, SECONDS = 50 << 20, 4.0
FAULT = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
SPEC = JobSpec.model_validate({"name": "a", "run": "x"})


def line(step: int) -> bytes:
    return b"step %d loss %.4f lr 1e-4\n" % (step, 2 + step % 7 / 10 - 1e-7 * step)


def log_of(size: int, first: int = 0) -> bytes:
    found, step = bytearray(), first
    while len(found) < size:
        found += line(step)
        step += 1
    return bytes(found)


def new_watch(paths: AttemptPaths) -> LogWatch:
    job = Job("a-1", SPEC, JobState.RUNNING, "", 0.0, 0.0, Knobs())
    return LogWatch(paths.log, job, series=SeriesWriter(paths, time.time))


def cpu(work: Callable[[], Any]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def read_all(paths: AttemptPaths) -> LogWatch:
    watch = new_watch(paths)
    while watch.read():
        pass
    return watch


def plain_loop(path: Path) -> int:
    """Do the least that a reader of lines does: split them, and look for a word."""
    with path.open(encoding="utf-8") as log:
        return sum("loss" in text.split() for text in log)


def typical(paths: AttemptPaths) -> None:
    data = log_of(TYPICAL)
    paths.log.write_bytes(data)
    count = data.count(b"\n")
    taken, plain = cpu(lambda: read_all(paths)), cpu(lambda: plain_loop(paths.log))
    print(
        f"  typical lines: {len(data) / taken / 1e6:.1f} MB/s, {1e6 * taken / count:.0f} microseconds a line;", end=" "
    )
    print(f"{taken / plain:.0f} x the time of a plain loop that splits each line ({1e6 * plain / count:.2f} us)")
    if (ripgrep := shutil.which("rg")) is not None:
        began = time.perf_counter()
        subprocess.run([ripgrep, "-ic", "out of memory|nan|Error:", paths.log], stdout=subprocess.DEVNULL, check=False)
        print(f"  ripgrep: {len(data) / (time.perf_counter() - began) / 1e6:.0f} MB/s")


def restart(paths: AttemptPaths) -> None:
    write_log(paths.log, LONG)
    without = cpu(lambda: read_all(paths))
    size = cursor_path(paths.log).stat().st_size
    with_cursor = cpu(lambda: read_all(paths))
    print(
        f"  restart beside {LONG >> 20} MB: {without:.2f} CPU s without a cursor, {with_cursor:.2f} with one", end=" "
    )
    print(f"of {size / 1e3:.0f} kB: {without / with_cursor:.0f} x sooner")


def print_fast(path: Path, done: threading.Event) -> None:
    """Write the lines of a job that prints too fast, then its fault, then nothing but words."""
    block = log_of(RATE // 100)
    with path.open("ab", buffering=0) as log:
        began, written = time.perf_counter(), 0
        while written < RATE * SECONDS:
            written += log.write(block)
            time.sleep(max(0.0, began + written / RATE - time.perf_counter()))
        log.write(FAULT)
        done.set()


def flood(paths: AttemptPaths) -> None:
    paths.log.write_bytes(b"")
    watch, printed = new_watch(paths), threading.Event()
    writer = threading.Thread(target=print_fast, args=(paths.log, printed))
    writer.start()
    farthest, ended, seen = 0, None, None
    while seen is None:
        more = watch.read()
        farthest = max(farthest, paths.log.stat().st_size - watch.offset)
        if printed.is_set() and ended is None:
            ended = time.perf_counter()
        if watch.fault is not None:
            seen = time.perf_counter()
        elif not more and ended is not None:
            break
    writer.join()
    late = "not seen" if seen is None else f"seen {max(0.0, seen - (ended or seen)):.2f} s after it was printed"
    size = paths.log.stat().st_size
    print(f"  a flood of {size / SECONDS / 1e6:.0f} MB/s: {farthest / 1e6:.1f} MB behind at most; its fault is {late};")
    print(f"    {watch.new_sampling_note()}")


def main(options: Sequence[str] = ()) -> None:
    print("Reading logs; CPU time of one core")
    for number, measure in enumerate((typical, restart, flood)):
        with tempfile.TemporaryDirectory() as folder:
            attempt = Path(folder) / "jobs" / "a-1" / "attempts" / str(number + 1)
            attempt.mkdir(parents=True)
            measure(AttemptPaths(attempt))


if __name__ == "__main__":
    main()
