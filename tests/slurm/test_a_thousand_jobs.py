"""Tests one controller with 1,000 batch jobs: all end, none runs twice, and the queue is not asked for each one."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from rung.jobs.model.state import JobState
from tests import pace
from tests.slurm.site import SiteLab

JOBS = 1000


@pytest.mark.long
def test_a_thousand_short_jobs_all_end_and_none_runs_twice(lab: SiteLab) -> None:
    (lab.folder / "many").mkdir()
    spec = {"name": "many", "workdir": "many", "slurm": {}, "run": ["sh", "-c", "echo step 1 loss 0.5"]}
    (lab.folder / "many.yaml").write_text(json.dumps(spec))
    # One launch takes 256 at most.
    for first in range(0, JOBS, 250):
        seeds = ",".join(str(seed) for seed in range(first, first + 250))
        lab.rung("launch", lab.folder / "many.yaml", "--grid", f"envs.SEED={seeds}")
    lab.control()

    def states() -> Counter[str]:
        return Counter(lab.store(lambda store: [job.state for job in store.jobs()]))

    pace.until(lambda: states()[JobState.SUCCEEDED] == JOBS, 3600, "all have ended", every=2.0)
    runs = list((lab.folder / "shared").glob("*/jobs/*/attempts/*/record/began"))
    assert len(runs) == JOBS
    numbers = [path.read_text().split()[0] for path in runs]
    assert len(set(numbers)) == JOBS
