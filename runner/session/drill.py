"""Owns the drills: a toy job with one real fault, run through a person's own set-up, and the verdict on it."""

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
from rung.runner.controller.controller import TURN_SECONDS, Controller
from rung.runner.engine_pool import RealEngines
from rung.runner.session.session import Session
from rung.runner.state.lock import ownership
from rung.runner.state.store import Event

CATALOG = Path(__file__).resolve().parents[2] / "jobs" / "catalog" / "drill"
# A minute is what it takes; an image may have to be pulled first.
PATIENCE_SECONDS = 300.0
# By then the job has left checkpoints and is in its slow half.
MEDDLE_STEP = 41
CANCEL_SECONDS = 30.0

NUMBERS = frozenset({FaultKind.NAN_LOSS, FaultKind.DIVERGENCE, FaultKind.GRAD_NONFINITE})
SCALER = frozenset({FaultKind.SCALE_COLLAPSE, FaultKind.GRAD_NONFINITE, FaultKind.DIVERGENCE})


@dataclass(frozen=True)
class Drill:
    """One fault: what is wrong, how it may be seen, and what may cure it."""

    what: str
    faults: frozenset[FaultKind] = frozenset()
    # None: the same knobs again.
    cures: frozenset[RungName | None] = frozenset()
    fields: dict[str, Any] = field(default_factory=dict)
    relaunches: int = 1
    meddles: bool = False


DRILLS: dict[str, Drill] = {
    "nan": Drill(
        "an lr far too high from step 40 on",
        NUMBERS,
        frozenset({RungName.LOWER_LR, RungName.RAISE_CLIP}),
        {"knobs": {"lr": 2.0}},
        relaunches=2,
    ),
    "overflow": Drill(
        "a mask that FP16 cannot hold, from step 40 on",
        frozenset({FaultKind.FP16_OVERFLOW}),
        frozenset({RungName.NATIVE_FP16, RungName.FP32}),
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
    "kill": Drill("a process that somebody kills", frozenset({FaultKind.INFRA_FAULT}), frozenset({None}), meddles=True),
    "link": Drill("a connection to the host that is cut while the job runs", relaunches=0, meddles=True),
}


def drill_spec(name: str, image: str | None) -> JobSpec:
    """Return the catalog's job with this fault in it."""
    base = load_spec(CATALOG / "job.yaml").model_dump(mode="json")
    more = DRILLS[name].fields
    knobs = {**base["knobs"], **more.get("knobs", {})}
    run = ["python", "train.py", "--fault", name, *(["--batch", "{batch}"] if "batch" in more.get("knobs", {}) else [])]
    said = {**base, **more, "name": f"drill-{name}", "run": run, "knobs": knobs, "image": image}
    return JobSpec.model_validate(said)


@dataclass(frozen=True)
class Verdict:
    passed: bool
    text: str
    job_id: str
    attempts: int
    seconds: float


def judge(name: str, job: Job, attempts: Sequence[Attempt]) -> tuple[bool, str]:
    """Say whether what happened is what the drill is for, in a sentence."""
    drill = DRILLS[name]
    if job.state is not JobState.SUCCEEDED:
        return False, f"the job is {job.state}: {job.reason}"
    relaunched = attempts[1:]
    faults = [each.fault for each in attempts if each.fault is not None]
    wrong = [fault.kind for fault in faults if fault.kind not in drill.faults]
    if wrong:
        return False, f"{wrong[0]} was seen, which is another fault than the drill's"
    if not drill.relaunches:
        return (not relaunched), f"the job went on through it, in {len(attempts)} attempt{'s' * (len(attempts) > 1)}"
    if not faults:
        return False, "no fault was seen: the job ended as if nothing were wrong with it"
    strange = [each.rung or "the same knobs" for each in relaunched if each.rung not in _names(drill)]
    if strange:
        return False, f"{faults[0].kind} was answered by {strange[0]}, which is not what cures it"
    if len(relaunched) > drill.relaunches:
        return False, f"it took {len(relaunched)} relaunches, at most {drill.relaunches} should do"
    rungs = ", ".join(each.rung or "the same knobs again" for each in relaunched)
    resumed = relaunched[-1].resumed_step
    return True, f"{faults[0].kind} at step {faults[0].step}, cured by {rungs} from step {resumed or 0} on"


def _names(drill: Drill) -> set[str | None]:
    return {rung.value if rung else None for rung in drill.cures}


class Rehearsal:
    """One run of a drill, from its submit to its verdict."""

    def __init__(self, desk: Session, engines: RealEngines, tell: Callable[[Event], None]) -> None:
        self._desk, self._engines, self._tell = desk, engines, tell
        self._meddled = False
        self._seen = 0

    def run(self, name: str, image: str | None) -> Verdict:
        began = time.monotonic()
        running = self._desk.controller_running()
        if name == "link" and running:
            raise UsageError("drill link: a controller is running, and its connection is not ours to cut; give --home")
        job = self._desk.submit(drill_spec(name, image), CATALOG)
        with nullcontext() if running else ownership(self._desk.paths):
            controller = None if running else self._desk.controller(self._engines)
            try:
                job = self._follow(name, job, controller)
            finally:
                if controller is not None:
                    controller.close()
        attempts = self._desk.store.attempts(job.id)
        passed, text = judge(name, job, attempts)
        if passed and DRILLS[name].meddles and not self._meddled:
            passed, text = False, "the job ended before anything was done to it"
        return Verdict(passed, text, job.id, len(attempts), time.monotonic() - began)

    def _follow(self, name: str, job: Job, controller: Controller | None) -> Job:
        """Attend to the job until it ends, doing to it what the drill is about; whoever gives up takes it along."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        try:
            while not job.ended and time.monotonic() < deadline:
                job = self._turn(job, controller)
                if DRILLS[name].meddles and not self._meddled:
                    self._meddled = self._meddle(name, job)
        finally:
            if not job.ended:
                job = self._cancel(job, controller)
        return job

    def _turn(self, job: Job, controller: Controller | None) -> Job:
        if controller is not None:
            controller.turn()
        time.sleep(TURN_SECONDS)
        for event in self._desk.store.events(job.id, after=self._seen):
            self._tell(event)
            self._seen = event.seq
        return self._desk.store.job(job.id)

    def _cancel(self, job: Job, controller: Controller | None) -> Job:
        self._desk.cancel(job)
        deadline = time.monotonic() + CANCEL_SECONDS
        while not job.ended and time.monotonic() < deadline:
            job = self._turn(job, controller)
        return job

    def _meddle(self, name: str, job: Job) -> bool:
        """Kill the job or cut its link once it is well under way; tell whether it was done."""
        last = next(reversed(self._desk.store.attempts(job.id)), None)
        if last is None or job.state is not JobState.RUNNING or (last.furthest_step or 0) < MEDDLE_STEP:
            return False
        try:
            if name == "link":
                self._engines.remote(last.host).drop_connection()
            else:
                engine = self._engines.here if not last.is_remote else self._engines.on(last.host)
                engine.kill_unannounced(self._desk.paths.attempt(job.id, last.number))
        except RungError:
            return False  # tried again on the next turn
        return True
