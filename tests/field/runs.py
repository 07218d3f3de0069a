"""Runs job files through the real command line and one controller, and reads the results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rung.runner.state.store import Store

ROOT = Path(__file__).resolve().parents[2]
# The installed command, or the one of the checkout if nothing is installed.
INSTALLED = Path(sys.executable).parent / "rung"
RUNG = (
    [str(INSTALLED)] if INSTALLED.exists() else [sys.executable, "-c", "from rung.runner.cli.main import main; main()"]
)
LOOK_SECONDS = 0.5
# Cancel a job that takes longer than this.
LIMIT_SECONDS = 900.0


class Runs:
    """Jobs of one RUNG_HOME: submitted a few at a time, and collected as they end."""

    def __init__(self, home: Path, env: Mapping[str, str]) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        first = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        self.home = home
        own = {"RUNG_HOME": str(home), "RUNG_CONTROLLER": "manual"}
        self._env = {**os.environ, "PYTHONPATH": path, "PATH": first, **env, **own}

    def rung(self, *words: str | Path) -> str:
        done = subprocess.run([*RUNG, *map(str, words)], env=self._env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"rung {' '.join(map(str, words))}: {done.stderr.strip()[-1000:]}")
        return done.stdout

    @contextmanager
    def controlled(self) -> Iterator[None]:
        """Run a controller during the block."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "controller.log").open("ab") as log:
            controller = subprocess.Popen([*RUNG, "controller"], env=self._env, stdout=log, stderr=log)
        try:
            yield
        finally:
            controller.terminate()
            controller.wait()

    def each(self, files: Sequence[Path], at_once: int) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yield the history of each job file's job, in the order in which they end."""
        waiting, active = list(files), dict[str, tuple[Path, float]]()
        while waiting or active:
            while waiting and len(active) < at_once:
                file = waiting.pop(0)
                active[str(json.loads(self.rung("launch", "--json", file))["id"])] = (file, time.monotonic())
            time.sleep(LOOK_SECONDS)
            for job in self.ended(active):
                yield active.pop(job)[0], json.loads(self.rung("history", "--json", job))
            for job, (_, began) in active.items():
                if time.monotonic() - began > LIMIT_SECONDS:
                    self.rung("cancel", job)

    def ended(self, jobs: Iterable[str]) -> list[str]:
        """Return the jobs that have ended. Reads the store, because running a command at every look takes a core."""
        with closing(Store(self.home / "rung.db")) as store:
            return [job for job in jobs if store.job(job).ended]

    def keep(self, history: Mapping[str, Any], to: Path) -> None:
        """Store a job's history and the log of each attempt with the results."""
        folder = to / history["job"]["name"]
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "history.json").write_text(json.dumps(history, indent=1))
        for attempt in history["attempts"]:
            log = Path(attempt["log"])
            if log.exists():
                shutil.copy(log, folder / f"attempt-{attempt['number']}.log")
