"""Owns running a training with one of the frameworks in a process of its own, and reading what it told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
INSIDE = Path(__file__).parents[4] / "jobs" / "inside"


class Told(dict):
    """What the training wrote, by name; the records between two names belong to the second."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines
        for line in lines:
            if line.startswith('{"name"'):
                values = json.loads(line)
                self[values.pop("name")] = values

    def _before(self, name: str) -> list[str]:
        end = next(index for index, line in enumerate(self.lines) if line.startswith(f'{{"name": "{name}"'))
        return self.lines[:end]

    def records(self, word: str, until: str | None = None) -> list[str]:
        """Return the records of one word, in order, all of them or those until a name."""
        prefix = f"rung| {word} "
        lines = self.lines if until is None else self._before(until)
        return [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]

    def knobs(self, name: str) -> dict[str, str]:
        """Return the values in force when this name was written."""
        newest = self.records("knobs", until=name)[-1]
        return dict(pair.split("=", 1) for pair in newest.split())


@pytest.fixture(scope="module")
def frameworks(tmp_path_factory):
    def run(script: str, *words: str) -> Told:
        folder = tmp_path_factory.mktemp("training")
        done = subprocess.run(
            [sys.executable, HERE / script, *words, folder],
            env={**os.environ, "PYTHONPATH": str(INSIDE), "PYTHONWARNINGS": "ignore"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        told = Told(done.stdout.splitlines())
        assert not told.records("note"), told.records("note")
        return told

    return run
