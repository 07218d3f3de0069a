"""Owns running a training with one of the frameworks in a process of its own, and reading what it told."""

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


class Told(dict):
    """What the training wrote, by name; the records before a name belong to it."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines
        for line in lines:
            if line.startswith('{"name"'):
                values = json.loads(line)
                self[values.pop("name")] = values

    def records(self, word: str, name: str) -> list[str]:
        """Return the records of one word that one of the trainings wrote, in order."""
        ends = [index for index, line in enumerate(self.lines) if line.startswith('{"name"')]
        end = next(index for index in ends if self.lines[index].startswith(f'{{"name": "{name}"'))
        begin = max((index for index in ends if index < end), default=0)
        prefix = f"rung| {word} "
        return [line.removeprefix(prefix) for line in self.lines[begin:end] if line.startswith(prefix)]

    def knobs(self, name: str) -> dict[str, str]:
        """Return the values that were in force at the end of one of the trainings."""
        return dict(pair.split("=", 1) for pair in self.records("knobs", name)[-1].split())


@pytest.fixture(scope="module")
def frameworks(tmp_path_factory):
    def run(script: str, *words: str) -> Told:
        folder = tmp_path_factory.mktemp("training")
        done = pace.run(
            [sys.executable, HERE / script, *words, folder],
            env={**os.environ, "PYTHONPATH": f"{INSIDE}{os.pathsep}{LEAN}", "PYTHONWARNINGS": "ignore"},
            cwd=folder,
            capture_output=True,
            text=True,
            usual=240,
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        told = Told(done.stdout.splitlines())
        assert not [line for line in told.lines if line.startswith("rung| note")]
        return told

    return run
