"""Logs that grow, and watches that read them, for the tests of reading."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from rung.jobs.job import Job
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.log_reading.state_codec import encode
from rung.runner.log_reading.watch import LogWatch
from rung.runner.series.write import SeriesWriter

CORPUS = sorted((Path(__file__).parents[2] / "corpus").glob("*.log"))


def attempt_paths(folder: Path) -> AttemptPaths:
    attempt = folder / "jobs" / "a-1" / "attempts" / "1"
    attempt.mkdir(parents=True)
    return AttemptPaths(attempt)


def new_watch(paths: AttemptPaths, *, slices: bool = False, **recovery: object) -> LogWatch:
    """Return a new watch, as a new controller makes one. `slices`: each read takes one chunk; else all there is."""
    spec = JobSpec.model_validate({"name": "a", "run": "x", "recovery": recovery})
    job = Job("a-1", spec, JobState.RUNNING, "", 0.0, 0.0, Knobs())
    ticks = itertools.count()
    steady = (lambda: float(next(ticks))) if slices else (lambda: 0.0)
    return LogWatch(paths.log, job, series=SeriesWriter(paths, lambda: 1.0), steady=steady)


def state_of(watch: LogWatch) -> str:
    """Return all that a watch knows, as text."""
    return encode((watch._scan, watch._links), watch._scan.outside())


def append(paths: AttemptPaths, data: bytes) -> None:
    with paths.log.open("ab") as log:
        log.write(data)


def random_pieces(data: bytes, rng: random.Random) -> list[bytes]:
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(1, 6)))
    return [data[a:b] for a, b in itertools.pairwise((0, *cuts, len(data)))]
