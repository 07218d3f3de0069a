"""Writes jobs straight into a store, in any state."""

from __future__ import annotations

from pathlib import Path

from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.store import Store


def submitted(home: Path, *states: JobState) -> str:
    home.mkdir(exist_ok=True)
    store = Store(home / "rung.db")
    with store.transaction():
        spec = JobSpec.model_validate({"name": "a", "run": "x {lr}", "knobs": {"lr": 0.1}})
        job = store.add_job(spec, home, at=1.0)
        for state in states:
            store.move(job.id, state, reason="on its way", at=2.0)
    store.close()
    return job.id
