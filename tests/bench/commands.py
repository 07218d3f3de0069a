"""Measures how much CPU time commands take, against a bare Python with click and sqlite3 in the same run.

The commands run in turns with the bare Python, so that what the machine does besides reaches all of them alike.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.home import make_home
from rung.runner.state.store import Store

FINISHED, ROUNDS = 5000, 9
BARE = (sys.executable, "-c", "import click, sqlite3")
RUNG = (str(Path(sys.executable).parent / "rung"),)


def main(options: Sequence[str] = ()) -> None:
    finished, rounds = (50, 2) if "--short" in options else (FINISHED, ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        few, many = fill(Path(folder) / "few", 0), fill(Path(folder) / "many", finished)
        commands = {
            "rung --help": (*RUNG, "--help"),
            "rung queue --limit 20": (*RUNG, "queue", "--limit", "20"),
            "rung queue": (*RUNG, "queue"),
            "rung history": (*RUNG, "history", "shown"),
            "rung logs": (*RUNG, "logs", "shown"),
        }
        # Bytecode as an installed Rung has it, also where this Python is told to write none.
        cached = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        cached["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        print(f"CPU time of commands, and as a ratio to `python -c 'import click, sqlite3'`; median of {rounds} rounds")
        print(f"  {'':24} {'one finished job':>24} {f'{finished + 1:,} finished jobs':>24}")
        for name, command in commands.items():
            cells = [measured(command, {**cached, "RUNG_HOME": str(home)}, rounds) for home in (few, many)]
            print(f"  {name:24} {cells[0]:>24} {cells[1]:>24}")


def fill(home: Path, finished: int) -> Path:
    """Make a home with jobs that have ended; the newest one, `shown`, has a log."""
    paths = HomePaths(home)
    make_home(paths)
    store = Store(paths.store)
    with store.transaction():
        for number in range(finished):
            add_finished(store, home, f"old-{number}")
        newest = add_finished(store, home, "shown")
    store.close()
    log = paths.attempt(newest, 1).log
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"step {step} loss 0.5\n" for step in range(1000)), encoding="utf-8")
    return home


def add_finished(store: Store, folder: Path, name: str) -> str:
    spec = JobSpec.model_validate({"name": name, "run": "python train.py --lr {lr}", "knobs": {"lr": 1e-3}})
    job = store.add_job(spec, folder, at=1.0)
    for state in (JobState.LAUNCHING, JobState.RUNNING, JobState.SUCCEEDED):
        store.move(job.id, state, reason="finished", at=9.0)
    times = {"started_at": 1.0, "ended_at": 9.0, "furthest_step": 1000, "loss": 0.5, "outcome": Outcome.SUCCEEDED}
    store.put_attempt(Attempt(job.id, 1, "localhost", spec.knobs.knobs(), None, "", by_person=True, **times))
    return job.id


def measured(command: Sequence[str], environ: dict[str, str], rounds: int) -> str:
    """Return the CPU seconds of a command and their ratio to the bare Python, each measured right after the other."""
    cpu_seconds(command, environ)  # writes the bytecode
    cpu_seconds(BARE, environ)
    pairs = [(cpu_seconds(command, environ), cpu_seconds(BARE, environ)) for _ in range(rounds)]
    ratio = median(one / bare for one, bare in pairs)
    return f"{median(one for one, _ in pairs):.3f} s, {ratio:.1f} x"


def cpu_seconds(command: Sequence[str], environ: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main(sys.argv[1:])
