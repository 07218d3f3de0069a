"""Runs whole recoveries for tests: a real home, a real controller in its own process, real trainings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.load import load_spec
from rung.runner.launch.submit import submit
from rung.runner.state.home import make_home
from rung.runner.state.store import Store
from rung.runner.views.history import history, with_series
from rung.runner.views.queue import queue
from tests import pace

TRAININGS = Path(__file__).parent / "trainings"
BIN = Path(sys.executable).parent
RUN = (
    "python regression.py --flaw {flaw} --lr {{lr}} --clip {{clip}} --precision {{precision}} "
    "--growth-interval {{growth_interval}} --dir {{checkpoint_dir}} --resume {{checkpoint}}"
)


@dataclass(frozen=True)
class Lab:
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        path = f"{BIN}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "RUNG_HOME": str(self.folder / "home")}

    def rung(self, *words: str, expect: int = 0) -> str:
        # A controller can run whole trainings; new files in the home show that it makes progress.
        home = self.folder / "home"
        done = pace.run(
            [BIN / "rung", *words],
            env=self.env,
            capture_output=True,
            text=True,
            usual=120,
            progress=lambda: pace.newest_change(home),
        )
        assert done.returncode == expect, f"rung {words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def job(self, flaw: str, options: str = "", **fields: Any) -> Path:
        """Write a job file for the small regression with one flaw in it."""
        knobs = {"lr": 0.05, "clip": "off", **fields.pop("knobs", {})}
        spec = {"name": flaw, "run": f"{RUN.format(flaw=flaw)} {options}".strip(), "knobs": knobs, **fields}
        return self.write(spec, TRAININGS / "regression.py")

    def write(self, spec: dict[str, Any], script: Path) -> Path:
        shutil.copy(script, self.folder)
        path = self.folder / "job.yaml"
        path.write_text(yaml.safe_dump(spec))
        return path

    @property
    def paths(self) -> HomePaths:
        return HomePaths(self.folder / "home")

    def submit(self, job: Path) -> str:
        """Submit a job like `rung launch`, but without a new process."""
        make_home(self.paths)
        with closing(Store(self.paths.store)) as store:
            return submit(store, load_spec(job), job.absolute().parent, at=time.time()).id

    def run(self, job: Path) -> dict[str, Any]:
        """Submit a job, run a controller until the job ends, and return its history."""
        name = self.submit(job)
        self.rung("controller", "--until-idle")
        return self.history(name)

    def history(self, name: str) -> dict[str, Any]:
        """Return what `rung history --json` prints, without a new process."""
        with closing(Store(self.paths.store)) as store:
            data = with_series(history(store, store.find(name), self.paths, time.time()))
        shown: dict[str, Any] = json.loads(json.dumps(data, default=str))
        return shown

    def row(self, name: str) -> dict[str, Any]:
        """Return a job's row of `rung queue --json`, without a new process and without reading its log."""
        with closing(Store(self.paths.store)) as store:
            return next(row for row in queue(store, time.time()) if row["id"] == name)

    def controller(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [BIN / "rung", "controller", "--until-idle"],
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def log(self, name: str, attempt: int) -> str:
        return (self.folder / "home" / "jobs" / name / "attempts" / str(attempt) / "log").read_text()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)
