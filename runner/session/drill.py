"""Runs drills: a toy job with one real fault goes through the user's own set-up, and the result is judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import RungError, UsageError
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import RungName
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.load import load_spec
from rung.runner.context import TURN_SECONDS
from rung.runner.engine_pool import RealEngines
from rung.runner.session.follow import hand_over
from rung.runner.session.pause import PatientController
from rung.runner.session.session import Session
from rung.runner.state.lock import ownership
from rung.runner.state.store import Event

CATALOG = Path(__file__).resolve().parents[2] / "jobs" / "catalog"
TOY = CATALOG / "drill"
# A drill takes about a minute; an image may have to be pulled first.
TIMEOUT_SECONDS = 300.0
# By then the job has written checkpoints and is in its slow half.
INJECT_STEP = 41
CANCEL_SECONDS = 30.0

NUMERIC = frozenset({FaultKind.NAN_LOSS, FaultKind.DIVERGENCE, FaultKind.GRAD_NONFINITE})
SCALER = frozenset({FaultKind.SCALE_COLLAPSE, FaultKind.GRAD_NONFINITE, FaultKind.DIVERGENCE})


@dataclass(frozen=True)
class Drill:
    """One fault: what is wrong, which faults may be detected, and which rungs may cure it."""

    what: str
    faults: frozenset[FaultKind] = frozenset()
    # None stands for a relaunch with the same knobs.
    cures: frozenset[RungName | None] = frozenset()
    fields: dict[str, Any] = field(default_factory=dict)
    relaunches: int = 1
    injects_fault: bool = False


DRILLS: dict[str, Drill] = {
    "nan": Drill(
        "an lr far too high from step 40 on",
        NUMERIC,
        frozenset({RungName.LOWER_LR, RungName.RAISE_CLIP}),
        {"knobs": {"lr": 2.0}},
        relaunches=2,
    ),
    "overflow": Drill(
        "a mask that FP16 cannot hold, from step 40 on",
        frozenset({FaultKind.FP16_OVERFLOW}),
        frozenset({RungName.CLAMP_CONSTANTS, RungName.NATIVE_FP16, RungName.FP32}),
    ),
    "unscale": Drill(
        "FP16 parameters under a loss scaler, from step 40 on",
        frozenset({FaultKind.UNSCALE_ERROR}),
        frozenset({RungName.NATIVE_FP16, RungName.FP32, RungName.FP32_PARAMS}),
    ),
    "collapse": Drill(
        "gradients beyond FP16 in every batch from step 40 on, under a finite loss",
        SCALER,
        frozenset({RungName.FP32, RungName.BF16}),
    ),
    "oom": Drill(
        "a batch that takes 2 GiB where the job may have 2",
        frozenset({FaultKind.OOM}),
        frozenset({RungName.LOWER_BATCH}),
        {"knobs": {"batch": 128}, "resources": {"memory": "2g"}},
        relaunches=2,
    ),
    "kill": Drill("the process is killed", frozenset({FaultKind.INFRA_FAULT}), frozenset({None}), injects_fault=True),
    "link": Drill("a connection to the host that is cut while the job runs", relaunches=0, injects_fault=True),
}


def drill_spec(name: str, image: str | None) -> JobSpec:
    """Return the job of the catalog with this fault."""
    base = load_spec(TOY / "job.yaml").model_dump(mode="json")
    more = DRILLS[name].fields
    knobs = {**base["knobs"], **more.get("knobs", {})}
    run = ["python", "train.py", "--fault", name, *(["--batch", "{batch}"] if "batch" in more.get("knobs", {}) else [])]
    fields = {**base, **more, "name": f"drill-{name}", "run": run, "knobs": knobs, "image": image}
    return JobSpec.model_validate(fields)


@dataclass(frozen=True)
class DrillVerdict:
    passed: bool
    text: str
    job_id: str
    attempts: int
    seconds: float


def judge(name: str, job: Job, attempts: Sequence[Attempt]) -> tuple[bool, str]:
    """Return whether the fault was detected and cured as it should be, and one sentence about it."""
    drill = DRILLS[name]
    if job.state is not JobState.SUCCEEDED:
        return False, f"the job is {job.state}: {job.reason}"
    relaunched = attempts[1:]
    faults = [each.fault for each in attempts if each.fault is not None]
    wrong_faults = [fault.kind for fault in faults if fault.kind not in drill.faults]
    if wrong_faults:
        return False, f"{wrong_faults[0]} was seen, which is another fault than the drill's"
    if not drill.relaunches:
        return (not relaunched), f"the job went on through it, in {len(attempts)} attempt{'s' * (len(attempts) > 1)}"
    if not faults:
        return False, "no fault was seen: the job ended as if nothing was wrong"
    wrong_rungs = [each.rung or "the same knobs" for each in relaunched if each.rung not in drill.cures]
    if wrong_rungs:
        return False, f"{faults[0].kind} was answered by {wrong_rungs[0]}, which is not what cures it"
    if len(relaunched) > drill.relaunches:
        return False, f"it took {len(relaunched)} relaunches, at most {drill.relaunches} should do"
    rungs = ", ".join(each.rung or "the same knobs again" for each in relaunched)
    resumed = relaunched[-1].resumed_step
    return True, f"{faults[0].kind} at step {faults[0].step}, cured by {rungs} from step {resumed or 0} on"


class DrillRun:
    """One run of a drill, from submit to verdict."""

    def __init__(self, session: Session, engines: RealEngines, on_event: Callable[[Event], None]) -> None:
        self._session, self._engines, self._on_event = session, engines, on_event
        self._injected = False
        self._last_event = 0

    def run(self, name: str, image: str | None) -> DrillVerdict:
        began = time.monotonic()
        running = self._session.controller_running()
        if name == "link" and running:
            raise UsageError("drill link: a controller is running, and its connection is not ours to cut; give --home")
        job = self._session.submit(drill_spec(name, image), TOY)
        with nullcontext() if running else ownership(self._session.paths):
            controller = None if running else self._session.controller(self._engines)
            try:
                job = self._follow(name, job, controller)
            finally:
                if controller is not None:
                    controller.close()
        hand_over(self._session)
        attempts = self._session.store.attempts(job.id)
        passed, text = judge(name, job, attempts)
        if passed and DRILLS[name].injects_fault and not self._injected:
            passed, text = False, "the job ended before the fault was injected"
        return DrillVerdict(passed, text, job.id, len(attempts), time.monotonic() - began)

    def _follow(self, name: str, job: Job, controller: PatientController | None) -> Job:
        """Run the job to its end and inject the fault; cancel the job on a timeout or an error."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        try:
            while not job.ended and time.monotonic() < deadline:
                job = self._turn(job, controller)
                if DRILLS[name].injects_fault and not self._injected:
                    self._injected = self._inject_fault(name, job)
        finally:
            if not job.ended:
                job = self._cancel(job, controller)
        return job

    def _turn(self, job: Job, controller: PatientController | None) -> Job:
        if controller is not None:
            controller.turn()
            controller.wait()
        else:
            time.sleep(TURN_SECONDS)
        for event in self._session.store.events(job.id, after=self._last_event):
            self._on_event(event)
            self._last_event = event.seq
        return self._session.store.job(job.id)

    def _cancel(self, job: Job, controller: PatientController | None) -> Job:
        self._session.cancel(job)
        deadline = time.monotonic() + CANCEL_SECONDS
        while not job.ended and time.monotonic() < deadline:
            job = self._turn(job, controller)
        return job

    def _inject_fault(self, name: str, job: Job) -> bool:
        """Kill the job or cut its connection once it runs well; return whether that was done."""
        last = next(reversed(self._session.store.attempts(job.id)), None)
        if last is None or job.state is not JobState.RUNNING or (last.furthest_step or 0) < INJECT_STEP:
            return False
        try:
            if name == "link":
                self._engines.remote(last.host).drop_connection()
            else:
                self._engines.of(last).kill_unannounced(self._session.paths.attempt(job.id, last.number))
        except RungError:
            return False  # tried again on the next turn
        return True
