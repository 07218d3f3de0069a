"""Writes a home with jobs in every state, faults, trials and hostile text: for tests and pictures of the page."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rung.jobs.job import Attempt, Job, Outcome, Verdict
from rung.jobs.model.event import EventKind
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.home import make_home
from rung.runner.state.store import Store

HOSTILE = "<script>alert(1)</script>\x1b[31mred\x1b[0m \u202egnp.exe <img src=x onerror=alert(2)>"
PATHS = {
    JobState.QUEUED: (),
    JobState.CANCELLED: (JobState.CANCELLED,),
    JobState.LAUNCHING: (JobState.LAUNCHING,),
    JobState.RUNNING: (JobState.LAUNCHING, JobState.RUNNING),
    JobState.RECOVERING: (JobState.LAUNCHING, JobState.RUNNING, JobState.RECOVERING),
    JobState.STOPPING: (JobState.LAUNCHING, JobState.RUNNING, JobState.STOPPING),
    JobState.SUCCEEDED: (JobState.LAUNCHING, JobState.RUNNING, JobState.SUCCEEDED),
    JobState.FAILED: (JobState.LAUNCHING, JobState.RUNNING, JobState.FAILED),
}


class WebHome:
    """A home, and a connection that writes to it as a controller would."""

    def __init__(self, home: Path) -> None:
        self.paths = HomePaths(home)
        make_home(self.paths)
        self.store = Store(self.paths.store)

    def close(self) -> None:
        self.store.close()

    def add(
        self, name: str, state: JobState = JobState.QUEUED, reason: str = "", ago: float = 60, **fields: Any
    ) -> Job:
        """Add a job in a state; its attempts are added separately."""
        at = time.time() - ago
        run = {"name": name, "run": "python train.py --lr {lr}", "knobs": {"lr": 0.001}, **fields}
        with self.store.transaction():
            job = self.store.add_job(JobSpec.model_validate(run), self.paths.home, at=at)
            for each in PATHS[state]:
                self.store.move(job.id, each, reason=reason or "on its way", at=at)
        return self.store.job(job.id)

    def attempt(self, job: Job, number: int, log: str = "", **fields: Any) -> Attempt:
        values = {"host": "localhost", "asked": Knobs(lr=0.001), "rung": None, "because": "", "by_person": number == 1}
        attempt = Attempt(job.id, number, **{**values, **fields})
        with self.store.transaction():
            self.store.put_attempt(attempt)
        if log:
            file = self.paths.attempt(job.id, number).log
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(log, encoding="utf-8")
        return attempt

    def event(self, job: Job, kind: EventKind, attempt: int | None = None, ago: float = 0, /, **data: Any) -> None:
        with self.store.transaction():
            self.store.add_event(job.id, attempt, kind, data, at=time.time() - ago)

    def recovered(self, name: str = "recovered") -> Job:
        """Add a job that had a NaN, whose trials chose a lower lr, and that runs again."""
        job = self.add(name, JobState.RUNNING, "attempt 4 makes progress", ago=2400)
        lines = [f"step {step} loss {2 - step / 900:.4f}" for step in range(1, 700)] + ["step 700 loss nan"]
        fault = Fault(FaultKind.NAN_LOSS, "step 700 loss nan", line=700, step=700)
        now = time.time()
        ran = {"started_at": now - 2400, "progress_at": now - 2390, "ended_at": now - 1500, "outcome": Outcome.FAULT}
        saved = {f"step_{step}.pt": step for step in (200, 400, 600)}
        self.attempt(
            job,
            1,
            "\n".join(lines) + "\n",
            fault=fault,
            furthest_step=700,
            first_step=1,
            loss=float("nan"),
            total_steps=3000,
            saved=saved,
            effective={"lr": 0.001, "clip": None},
            **ran,
        )
        table = [
            {"rung": "raise_clip", "steps": 60, "loss": 1.91, "ms": 4.1, "verdict": "diverges again"},
            {"rung": "lower_lr", "steps": 60, "loss": 1.32, "ms": 4.0, "verdict": "best"},
        ]
        self.event(job, EventKind.STARTED, 1, 2400, argv=["python", "train.py", "--lr", "0.001"])
        self.event(job, EventKind.FAULT, 1, 1500, **fault.to_dict())
        self.event(
            job,
            EventKind.CHECKPOINT,
            1,
            1490,
            file="step_600.pt",
            verdict="not_finite",
            step=600,
            detail="head.weight has NaN",
        )
        self.event(job, EventKind.CHECKPOINT, 1, 1489, file="step_400.pt", verdict="healthy", step=400, detail="")
        because = "nan_loss at step 700: lower_lr lr 0.001 -> 0.0001, resumed at step 400"
        self.event(job, EventKind.TRIALS, 1, 1300, because="lower_lr has the lowest loss at equal steps", table=table)
        self.event(job, EventKind.DECIDED, 2, 1290, because=because)
        self.attempt(
            job,
            2,
            "resumed at step 400\nstep 1200 loss 0.61\n",
            asked=Knobs(lr=0.0001),
            rung="lower_lr",
            after_fault="nan_loss",
            because=because,
            resumed_from="step_400.pt",
            planned_step=400,
            resumed_step=400,
            first_step=401,
            furthest_step=1200,
            loss=0.61,
            total_steps=3000,
            effective={"lr": 0.0001},
            started_at=now - 1280,
            progress_at=now - 1270,
            verdict=Verdict.RECOVERED,
            verdict_why="the loss falls again: 0.61 at step 1200, 1.22 before the fault",
            skipped=(("increase_growth_interval", "no scaler was seen"),),
        )
        self.event(job, EventKind.RECOVERED, 2, 600, because="the loss falls again: 0.61 at step 1200")
        return self.store.job(job.id)

    def hostile(self) -> Job:
        """Add a failed job all of whose text is hostile."""
        job = self.add("hostile", JobState.FAILED, HOSTILE, ago=30)
        fault = Fault(FaultKind.NAN_LOSS, HOSTILE, line=1, step=3)
        attempt = self.attempt(
            job,
            1,
            f"{HOSTILE}\nstep 3 loss nan\n",
            fault=fault,
            because=HOSTILE,
            saved={HOSTILE: 2},
            metrics={HOSTILE: 1.0},
            effective={"lr": HOSTILE},
            links=(HOSTILE,),
            outcome=Outcome.FAULT,
            started_at=time.time(),
            verdict_why=HOSTILE,
        )
        with self.store.transaction():
            self.store.put_attempt(replace(attempt, host="<b>host</b>"))
        self.event(job, EventKind.FAULT, 1, **fault.to_dict())
        self.event(
            job,
            EventKind.TRIALS,
            1,
            because=HOSTILE,
            table=[{"rung": HOSTILE, "steps": 1, "loss": "nan", "ms": None, "verdict": HOSTILE}],
        )
        return self.store.job(job.id)
