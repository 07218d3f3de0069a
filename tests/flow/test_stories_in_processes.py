"""Runs the recoveries that are the same on every engine as processes on this machine."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.engine import PROCESS
from rung.runner.state.store import Store
from tests.flow.conftest import Lab
from tests.support.stories import Place, Stories


@dataclass(frozen=True)
class ThisMachine:
    lab: Lab
    engine = PROCESS

    def run(self, name: str, script: Path, **fields: Any) -> tuple[str, list[Attempt]]:
        job = self.lab.write({"name": name, **fields}, script)
        (self.lab.folder / script.name).rename(self.lab.folder / "train.py")
        history = self.lab.run(job)
        assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
        with closing(Store(self.lab.paths.store)) as store:
            return history["job"]["id"], store.attempts(history["job"]["id"])

    def log(self, job: str, attempt: int) -> str:
        return self.lab.log(job, attempt)


@pytest.fixture
def place(lab: Lab) -> Place:
    return ThisMachine(lab)


class TestInProcesses(Stories):
    # One of the catalog's jobs has the same fault, and always runs.
    test_zero_edit_cures_a_script_that_redirects_its_output_to_a_file = pytest.mark.long(
        Stories.test_zero_edit_cures_a_script_that_redirects_its_output_to_a_file
    )
