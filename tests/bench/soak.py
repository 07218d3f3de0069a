"""Watches the controller for as long as asked while jobs come, fail, recover and end, and says whether it grows.

python -m tests.bench soak --minutes=120 --jobs=50 [--notes=FILE]

Every minute the memory, the open files and the threads of the controller are noted. Jobs that have ended stay in the
store, as they do for a person, so a controller that keeps anything of them grows.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from tests.bench.controller import Home, with_home

# A training: it prints a line every second, and ends as it was told to: well, with a NaN once, or with an exit code.
TRAINING = """
import os, sys, time
notes, seconds, end = sys.argv[1], int(sys.argv[2]), sys.argv[3]
again = os.path.exists(notes)
open(notes, "a").close()
for step in range(seconds):
    print("step", step, "loss", 2 / (1 + step / 50), flush=True)
    time.sleep(1)
if end == "nan" and not again:
    print("".join(f"step {seconds + more} loss nan\\n" for more in range(40)), end="", flush=True)
    time.sleep(1000)
sys.exit(3 if end == "code" else 0)
"""
ENDS = ("well", "well", "well", "nan", "nan", "code")
SEED = 20


@dataclass(frozen=True)
class Sample:
    """What the controller held at a moment, and how many jobs had ended by then."""

    minute: float
    memory: int
    files: int
    threads: int
    cpu: float
    ended: int


def main(options: Sequence[str] = ()) -> None:
    asked = {word.partition("=")[0]: word.partition("=")[2] for word in options}
    minutes, jobs = float(asked.get("--minutes", "10")), int(asked.get("--jobs", "50"))
    with_home(lambda home: soak(home, minutes, jobs, Path(asked["--notes"]) if "--notes" in asked else None))


def soak(home: Home, minutes: float, jobs: int, notes: Path | None) -> None:
    script = home.folder / "training.py"
    script.write_text(TRAINING, encoding="utf-8")
    home.start()
    chance, began, samples = random.Random(SEED), time.monotonic(), list[Sample]()
    launch(home, script, 0, chance)
    store, launched = home.store(), 1
    while (passed := (time.monotonic() - began) / 60) < minutes:
        active = store.active_count()
        for _ in range(min(jobs - active, 5)):
            launch(home, script, launched, chance)
            launched += 1
        if passed >= len(samples) * min(1.0, minutes / 8):
            samples.append(sample(home, passed, launched - store.active_count()))
            if notes is not None:
                notes.write_text("".join(json.dumps(asdict(each)) + "\n" for each in samples), encoding="utf-8")
        time.sleep(2)
    attempts = sum(len(store.attempts(job.id)) for job in store.jobs())
    store.close()
    report(samples, launched, attempts)


def launch(home: Home, script: Path, number: int, chance: random.Random) -> None:
    """Submit a job that takes one to eight minutes."""
    notes = home.folder / f"notes-{number}"
    run = [sys.executable, "-I", "-S", str(script), str(notes), str(chance.randint(60, 480)), chance.choice(ENDS)]
    recovery = {"ladder": ["lower_lr"], "trials": "off"}
    home.rung("launch", str(home.job_file(f"soak-{number}", [*run, "{lr}"], knobs={"lr": 0.1}, recovery=recovery)))
    # A person looks, too.
    if number % 10 == 0:
        home.rung("queue")


def sample(home: Home, minute: float, ended: int) -> Sample:
    assert home.controller is not None
    own = Path(f"/proc/{home.controller.pid}")
    threads = re.findall(r"Threads:\s+(\d+)", (own / "status").read_text(encoding="utf-8"))
    files = len(list((own / "fd").iterdir()))
    return Sample(round(minute, 2), home.memory(), files, int(threads[0]), home.cpu(), ended)


def report(samples: Sequence[Sample], launched: int, attempts: int) -> None:
    """Compare the parts of the time with each other; the first quarter is that of the start."""
    print(f"soak: {samples[-1].minute:.0f} minutes, {launched} jobs launched, {attempts} attempts")
    for number in range(1, 5):
        part = samples[len(samples) * (number - 1) // 4 : len(samples) * number // 4]
        memory, files = median(each.memory for each in part) / 1e6, median(each.files for each in part)
        threads, most = median(each.threads for each in part), max(each.files for each in part)
        print(
            f"  quarter {number}: {memory:.1f} MB of memory, {files:g} open files (at most {most}), "
            f"{threads:g} threads, {part[-1].ended} jobs had ended"
        )
    share = (samples[-1].cpu - samples[0].cpu) / max(60 * (samples[-1].minute - samples[0].minute), 1)
    print(f"  {100 * share:.1f} % of a core; growth of memory in the last half: {growth(samples):+.2f} MB an hour")


def growth(samples: Sequence[Sample]) -> float:
    """Return the slope of memory over the last half, by least squares, in MB an hour."""
    half = samples[len(samples) // 2 :]
    middle = sum(each.minute for each in half) / len(half)
    spread = sum((each.minute - middle) ** 2 for each in half)
    return 60 * sum((each.minute - middle) * each.memory / 1e6 for each in half) / max(spread, 1e-9)
