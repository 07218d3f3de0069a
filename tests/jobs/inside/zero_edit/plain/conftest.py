"""Starts trainings that do not know Rung: many in forks of one process, or one as a command."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import pace

HERE = Path(__file__).parent
INSIDE = HERE.parents[4] / "jobs" / "inside"
LEAN = HERE.parents[3] / "lean"


@dataclass(frozen=True)
class Trained:
    """The result of one training."""

    result: Any
    error: str
    output: str

    def records(self, kind: str) -> list[dict[str, str]]:
        start = f"rung| {kind} "
        lines = [line[len(start) :] for line in self.output.splitlines() if line.startswith(start)]
        return [dict(pair.split("=", 1) for pair in shlex.split(line)) for line in lines]

    @property
    def knobs(self) -> dict[str, str]:
        return self.records("knobs")[-1]


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RUNG_", "PYTHON"))}
    path = f"{INSIDE}{os.pathsep}{LEAN}"
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **variables}


def all_of(cases: Mapping[str, Sequence[Any]], *modules: str) -> dict[str, Trained]:
    """Run the cases {name: (function, knobs, variables)}; the modules hold the functions."""
    asked = [[name, *case, *([{}] if len(case) < 3 else [])] for name, case in cases.items()]
    command = [sys.executable, str(HERE / "forking.py"), *modules]
    done = pace.run(
        command, input=json.dumps(asked), env=environment(), capture_output=True, text=True, usual=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return {
        name: Trained(got.get("result"), got.get("error", ""), got["output"])
        for name, got in json.loads(done.stdout.splitlines()[-1]).items()
    }


@pytest.fixture(scope="session")
def train() -> Callable[..., dict[str, Trained]]:
    return all_of


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs one command in its own folder, with zero-edit or without it."""

    def starting(*argv: str, knobs: Mapping[str, Any] | None = None, zero: bool = True, **variables: str) -> Any:
        if zero:
            variables = {"RUNG_MODE": "zero-edit", "RUNG_KNOBS": json.dumps(dict(knobs or {})), **variables}
        env = environment(**variables)
        return pace.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, usual=120, check=False)

    return starting
