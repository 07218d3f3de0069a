"""Measures the controller: from a fault to the next process, its share of a core, and how it starts many jobs at once.

Every figure is of a real controller with real processes on this machine. The peer is a loop that starts the same
command again as soon as it ends, measured in the same run.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles

from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.runner.hosts.this_machine import MAX_PARALLEL
from rung.runner.state import transitions
from rung.runner.state.store import Store
from tests import pace

TICKS = os.sysconf("SC_CLK_TCK")
START_SECONDS = 1800.0
# A job that fails with a NaN loss once, and notes when it starts and when it fails.
FAILING = """
import os, sys, time
again = os.path.exists(sys.argv[1])
with open(sys.argv[1], "a") as times:
    print("start", time.monotonic(), file=times, flush=True)
    print("step 1 loss 1.0", flush=True)
    if again:
        raise SystemExit
    time.sleep(1.0 + os.getpid() % 7 / 10)
    print("fault", time.monotonic(), file=times, flush=True)
    print("".join(f"step {step} loss nan\\n" for step in range(2, 40)), end="", flush=True)
    time.sleep(1000)
"""
# A job that prints a line every few seconds. A shell, because a thousand Pythons would be the measurement.
PRINTING = "i=0; while :; do i=$((i+1)); echo step $i loss 0.5; sleep {seconds}; done"

# A job that prints so many lines a second, ten times a second; little of Python is loaded for it.
CHATTY = """
import os, time
step, began = 0, time.monotonic()
while True:
    steps = range(step, step + {count})
    line = b"step %d loss %.4f lr 1e-4 grad_norm %.3f\\n"
    os.write(1, b"".join(line % (n, 2 + n % 7 / 10, 1 + n % 3 / 10) for n in steps))
    step += {count}
    time.sleep(max(0.0, began + step / {rate} - time.monotonic()))
"""


class Home:
    """A home of its own with a real controller."""

    def __init__(self, folder: Path, slots: int) -> None:
        self.folder = folder
        self.environ = {**os.environ, "RUNG_HOME": str(folder / "home"), MAX_PARALLEL: str(slots)}
        self.controller: subprocess.Popen[bytes] | None = None

    def rung(self, *words: str) -> None:
        subprocess.run(["rung", *words], env=self.environ, check=True, stdout=subprocess.DEVNULL)

    def start(self) -> None:
        command = ["rung", "controller"]
        self.controller = subprocess.Popen(command, env=self.environ, stdout=subprocess.DEVNULL)

    def job_file(self, name: str, run: Sequence[str], **fields: object) -> Path:
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps({"name": name, "run": list(run), **fields}), encoding="utf-8")
        return file

    def store(self) -> Store:
        return Store(self.folder / "home" / "rung.db")

    def cpu(self) -> float:
        """Return the seconds of a core that the controller has used."""
        assert self.controller is not None
        words = Path(f"/proc/{self.controller.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICKS

    def lines_read(self) -> int:
        """Return how many steps of all jobs the controller has read; each is a line."""
        store = self.store()
        try:
            return sum(store.attempts(job.id)[-1].furthest_step or 0 for job in store.jobs(active=True))
        finally:
            store.close()

    def memory(self) -> int:
        assert self.controller is not None
        status = Path(f"/proc/{self.controller.pid}/status").read_text(encoding="utf-8")
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) * 1024

    def longest_turn(self) -> float:
        figures = json.loads(HomePaths(self.folder / "home").turn_times.read_text(encoding="utf-8"))
        return float(figures["longest"])

    def close(self) -> None:
        """End every job, then the controller."""
        assert self.controller is not None
        try:
            store = self.store()
            with store.transaction():
                for job in store.jobs(active=True):
                    transitions.cancel_requested(store, job, at=time.time())
            pace.until(lambda: not store.jobs(active=True), START_SECONDS, every=1)
            store.close()
        finally:
            self.controller.terminate()
            self.controller.wait()


def main(options: Sequence[str] = ()) -> None:
    asked = {word.partition("=")[0]: word.partition("=")[2] for word in options}
    faults = int(asked.get("--faults", "40"))
    sizes = [int(word) for word in asked.get("--jobs", "100,300").split(",") if word]
    print("controller on this machine, one process a job")
    for beside in (0, int(asked.get("--beside", "50"))) if faults else ():
        with_home(lambda home, beside=beside: latency(home, beside, faults))
    rate, seconds = float(asked.get("--lines-per-second", "0.2")), float(asked.get("--seconds", "30"))
    for jobs in sizes:
        with_home(lambda home, jobs=jobs: load(home, jobs, rate, seconds))


def with_home(measure: Callable[[Home], None]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rung-bench-"))
    home = Home(folder, slots=5000)
    try:
        measure(home)
    finally:
        home.close()
        shutil.rmtree(folder, ignore_errors=True)


def printers(home: Home, jobs: int, rate: float) -> None:
    """Submit jobs that print so many lines a second, and wait until all of them run."""
    script = CHATTY.format(count=max(1, round(rate / 10)), rate=rate)
    run = ["sh", "-c", PRINTING.format(seconds=1 / rate)] if rate <= 1 else [sys.executable, "-I", "-S", "-c", script]
    began = add_copies(home, home.job_file("printer", run, recovery={"stalled": "off"}), jobs)
    store = home.store()
    pace.until(lambda: _count(store) == jobs, START_SECONDS, every=0.5)
    print(f"  {jobs} jobs submitted at once: all run after {time.monotonic() - began:.1f} s")
    store.close()


def add_copies(home: Home, file: Path, jobs: int) -> float:
    """Submit a job so many times at once; return when that was."""
    home.rung("launch", str(file))
    store = home.store()
    first = store.jobs()[0]
    with store.transaction():
        for _ in range(jobs - 1):
            store.add_job(first.spec, file.parent, at=time.time())
    store.close()
    return time.monotonic()


def _count(store: Store) -> int:
    return sum(job.state is JobState.RUNNING for job in store.jobs(active=True))


def load(home: Home, jobs: int, rate: float, seconds: float) -> None:
    home.start()
    printers(home, jobs, rate)
    time.sleep(10)
    before, read, began = home.cpu(), home.lines_read(), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    share, lines = (home.cpu() - before) / passed, (home.lines_read() - read) / passed
    # On a busy machine it reads fewer than are printed.
    each = f", {1e6 * share / lines:.0f} microseconds a line, {lines:.0f} lines a second read" if rate > 1 else ""
    print(
        f"  {jobs} jobs with {rate:g} lines a second: {100 * share:.1f} % of a core{each}, "
        f"{home.memory() / 1e6:.0f} MB, longest turn since the start {home.longest_turn():.2f} s"
    )


def latency(home: Home, beside: int, faults: int) -> None:
    """Let jobs fail one after the other, and print the time from the fault to the next process."""
    home.start()
    if beside:
        printers(home, beside, 0.2)
    script = home.folder / "failing.py"
    script.write_text(FAILING, encoding="utf-8")
    recovery = {"ladder": ["lower_lr"], "trials": "off"}
    notes = [home.folder / f"times-{number}" for number in range(faults)]
    for number, file in enumerate(notes):
        run = [sys.executable, str(script), str(file), "{lr}"]
        home.rung("launch", str(home.job_file(f"failing-{number}", run, knobs={"lr": 0.1}, recovery=recovery)))
    pace.until(lambda: all(_launches(file) == 2 for file in notes), START_SECONDS, every=0.5)
    times = [_gap(file) for file in notes]
    p99 = quantiles(times, n=100)[98] if len(times) > 1 else times[0]
    peer = relaunch_by_a_loop()
    print(
        f"  fault to next process beside {beside} jobs: p50 {median(times):.2f} s, p99 {p99:.2f} s, "
        f"{len(times)} faults (a shell loop that starts it again: {peer:.2f} s; {median(times) / peer:.1f} times that)"
    )


def _launches(notes: Path) -> int:
    return notes.read_text(encoding="utf-8").count("start") if notes.exists() else 0


def _gap(notes: Path) -> float:
    """Return the seconds from the fault of a job to the start of its second process."""
    _, fault, start = (line.split() for line in notes.read_text(encoding="utf-8").splitlines())
    return float(start[1]) - float(fault[1])


def relaunch_by_a_loop() -> float:
    """Return how long the interpreter alone takes to start after the one before it has ended."""
    script = "import time; print(time.monotonic(), flush=True)"
    loop = f"for i in 1 2 3 4 5 6 7 8 9; do {sys.executable} -c '{script}'; done"
    printed = subprocess.run(["sh", "-c", loop], capture_output=True, text=True, check=True).stdout.split()
    starts = [float(word) for word in printed]
    return median(after - before for before, after in itertools.pairwise(starts))
