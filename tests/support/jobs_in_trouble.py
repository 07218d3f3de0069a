"""Makes jobs and attempts for the tests of the pure floor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rung.jobs.job import Attempt, Job, Outcome
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.decide.checkpoint_choice import HEALTHY, Checkpoint
from rung.recovery.decide.decide import Relaunch, Wait, decide


def a_job(**fields: Any) -> Job:
    knobs = {"mode": "inside", "lr": 1e-3, "clip": 5.0, **fields.pop("knobs", {})}
    spec = JobSpec.model_validate({"name": "job", "run": "python train.py", "knobs": knobs, **fields})
    return Job("job-1", spec, JobState.RECOVERING, "", 0.0, 0.0, spec.knobs.knobs())


def a_fault(kind: FaultKind, step: int | None = 100, **fields: Any) -> Fault:
    return Fault(kind, f"{kind} as the log had it", line=7, step=step, **fields)


def an_attempt(number: int, knobs: Knobs, fault: Fault | None, **fields: Any) -> Attempt:
    """Return an ended attempt; attempt n lives from time 100n to 100n+50."""
    ended = Attempt("job-1", number, "localhost", knobs, fields.pop("rung", None), "because", **fields)
    step = fault.step if fault else 500
    return replace(
        ended,
        fault=fault,
        furthest_step=step,
        outcome=Outcome.FAULT if fault else Outcome.SUCCEEDED,
        started_at=100.0 * number,
        ended_at=100.0 * number + 50,
    )


def carried_out(number: int, decision: Relaunch, fault: Fault, effective: dict[str, Any] | None = None) -> Attempt:
    """Return the attempt a decision led to, ended by this fault."""
    found = decision.checkpoint
    return an_attempt(
        number,
        decision.knobs,
        fault,
        rung=decision.rung.value if decision.rung else None,
        resumed_from=found.name if found else None,
        resumed_step=found.step if found else 0,
        effective=decision.knobs.to_dict() if effective is None else effective,
    )


def a_checkpoint(step: int, verdict: str | None = HEALTHY, written_at: float = 1.0) -> Checkpoint:
    return Checkpoint(f"step_{step}.pt", step, written_at, verdict)


def first_rung(
    fault: Fault, gpu: Gpu | None = None, script_values: dict[str, Any] | None = None, **recovery: Any
) -> Any:
    """Return the rung that a zero-edit job takes first for this fault, or the diagnosis it stops with."""
    job = a_job(knobs={"mode": "zero-edit", "lr": None, "clip": None}, recovery=recovery)
    effective = {"lr": 1e-3, "precision": "amp_fp16", **(script_values or {})}
    decision = decide(job, [an_attempt(1, job.knobs, fault, effective=effective)], [], gpu)
    assert not isinstance(decision, Wait)
    return decision.rung if isinstance(decision, Relaunch) else decision.diagnosis


def nan_fault(step: int | None = 100, kind: FaultKind = FaultKind.NAN_LOSS, **fields: Any) -> Fault:
    return a_fault(kind, step, **fields)
