"""Measures what the wrapper of a process job costs: its own memory, the time of a start, and that of a look at it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from rung.jobs.model.paths import AttemptPaths, HomePaths
from rung.runner.engines.process import ProcessEngine
from rung.runner.seams.engine import Presence, Request

STARTS, LOOKS = 20, 2000


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def request(folder: Path, paths: AttemptPaths) -> Request:
    env = {"PATH": os.environ["PATH"]}
    return Request("a-1", paths.number, ("sleep", "600"), folder, env, paths, folder / "checkpoints")


def private_kb(paths: AttemptPaths) -> int:
    """Return the memory that no other process shares with the wrapper."""
    pid = json.loads(paths.claim.read_bytes())["pid"]
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def measure(engine: ProcessEngine, requests: Sequence[Request]) -> tuple[float, float, float]:
    """Return the median time of a start in ms, the private memory of a wrapper in KB, and microseconds of a look."""
    times = [seconds(lambda each=each: engine.start(each, {})) for each in requests]
    try:
        while not all(each.paths.running.exists() for each in requests):
            time.sleep(0.01)
        memory = median(private_kb(each.paths) for each in requests)
        look = seconds(lambda: [engine.observe(requests[0].paths) for _ in range(LOOKS)]) / LOOKS
    finally:
        for each in requests:
            engine.stop(each.paths, force=True)
            while engine.observe(each.paths).presence is Presence.RUNNING:
                time.sleep(0.01)
                engine.stop(each.paths, force=True)
    return 1e3 * median(times), memory, 1e6 * look


def main(options: Sequence[str] = ()) -> None:
    engine, numbers = ProcessEngine(), range(1, STARTS + 1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = HomePaths(folder / "home")
        forked = measure(engine, [request(folder, home.attempt("a-1", number)) for number in numbers])
        direct = measure(engine, [request(folder, AttemptPaths(folder / "attempts" / str(each))) for each in numbers])
    bare = 1e3 * median(seconds(lambda: subprocess.run(["sh", "-c", ":"], check=True)) for _ in numbers)
    print("The wrapper of a process job: median of 20, against `sh -c :` in the same run")
    print(f"  a bare start takes {bare:.1f} ms")
    for name, (start, memory, look) in (("forked", forked), ("own interpreter", direct)):
        print(
            f"  {name:15}: {memory:,.0f} KB of its own, a start {start:.1f} ms ({start / bare:.1f} x), "
            f"{look:.0f} µs a look"
        )


if __name__ == "__main__":
    main()
