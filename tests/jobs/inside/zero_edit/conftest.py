"""Runs a training with a framework in its own process, and reads its output."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests import pace

HERE = Path(__file__).parent
INSIDE = Path(__file__).parents[4] / "jobs" / "inside"
LEAN = Path(__file__).parents[3] / "lean"


class Output(dict):
    """The output of the trainings by name; the records before a name belong to it."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines
        for line in lines:
            if line.startswith('{"name"'):
                values = json.loads(line)
                self[values.pop("name")] = values

    def records(self, kind: str, name: str) -> list[str]:
        """Return the records of one kind that one of the trainings wrote, in order."""
        ends = [index for index, line in enumerate(self.lines) if line.startswith('{"name"')]
        end = next(index for index in ends if self.lines[index].startswith(f'{{"name": "{name}"'))
        begin = max((index for index in ends if index < end), default=0)
        prefix = f"rung| {kind} "
        return [line.removeprefix(prefix) for line in self.lines[begin:end] if line.startswith(prefix)]

    def knobs(self, name: str) -> dict[str, str]:
        """Return the values that were in force at the end of one of the trainings."""
        return dict(pair.split("=", 1) for pair in self.records("knobs", name)[-1].split())


@pytest.fixture(scope="module")
def frameworks(tmp_path_factory):
    def run(script: str, *arguments: str) -> Output:
        folder = tmp_path_factory.mktemp("training")
        done = pace.run(
            [sys.executable, HERE / script, *arguments, folder],
            env={**os.environ, "PYTHONPATH": f"{INSIDE}{os.pathsep}{LEAN}", "PYTHONWARNINGS": "ignore"},
            cwd=folder,
            capture_output=True,
            text=True,
            usual=240,
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        output = Output(done.stdout.splitlines())
        assert not [line for line in output.lines if line.startswith("rung| note")]
        return output

    return run
