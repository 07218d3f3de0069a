"""Blocks the first launch of a job with `recovery.validate: before` until its validation has a verdict.

The verdict and its consequence are written in one transaction: after a FAIL the job's knobs are FP32, so that every
launch, rung and resume uses it.
"""

from __future__ import annotations

from dataclasses import dataclass

from rung.jobs.job import Job
from rung.jobs.model.event import EventKind
from rung.jobs.model.knobs import Precision
from rung.recovery.validation.verdict import Verdict
from rung.runner.context import Context
from rung.runner.state.store import Store
from rung.runner.validation.record import Validation, digest_of, find_or_begin, validations

AS_SUBMITTED = "as submitted"


@dataclass(frozen=True)
class Gate:
    context: Context

    def blocks(self, job: Job) -> bool:
        """Tell whether a job must wait for its validation; begin one if there is none."""
        if (
            job.spec.recovery.gate == "off"
            or job.knobs.precision is Precision.FP32
            or _has_verdict(self.context.store, job)
        ):
            return False
        found = self._awaited(job) or self._begin(job)
        if found.verdict is None:
            self.context.set_reason(job, f"waits for its validation {found.id}: {self._progress(found)}")
        else:
            self._record_verdict(job, found)
        return True

    def _awaited(self, job: Job) -> Validation | None:
        """Return the validation that this job waits for, with or without a verdict; a retry begins a new one."""
        events = self.context.store.events(job.id)
        since = max((event.seq for event in events if event.kind == EventKind.RETRIED), default=0)
        waited = [
            event.data["validation"] for event in events if event.kind == EventKind.VALIDATING and event.seq > since
        ]
        for found in validations(self.context.store) if waited else ():
            # One of another job that was cancelled proves nothing about this one.
            if found.id == waited[-1] and (found.for_job == job.id or found.verdict is not Verdict.UNDECIDED):
                return found
        return None

    def _begin(self, job: Job) -> Validation:
        """Record that the job waits for its validation: a new one, or one of the same content."""
        store, metric, at = self.context.store, job.spec.validated_metric, self.context.now()
        assert metric is not None, "a spec that asks for the gate names a metric"
        origin = store.origin(job.id)
        digest = digest_of(job.spec, origin, metric, self.context.paths.home)
        asked = Validation(
            0, digest, job.spec, origin, metric, at, job.id, blocks_job=True, python=store.python(job.id)
        )
        with store.transaction():
            found = find_or_begin(store, asked)
            because = (
                f"validation {found.id} comes first: FP32 against {job.knobs.precision or 'the precision as asked'}"
            )
            store.add_event(job.id, None, EventKind.VALIDATING, {"because": because, "validation": found.id}, at=at)
        return found

    def _progress(self, found: Validation) -> str:
        """Return which of the two runs is under way."""
        for run in filter(None, (found.baseline, found.candidate)):
            job = self.context.store.job(run)
            if not job.ended:
                return f"{run} is {job.state}"
        return "its runs are being compared" if found.candidate else "its first run is about to be submitted"

    def _record_verdict(self, job: Job, found: Validation) -> None:
        """Record the verdict in the job's history and, after a FAIL, set its precision to FP32."""
        store = self.context.store
        report = str(self.context.paths.validation(found.id) / "report.html")
        because = f"{found.verdict} (validation {found.id}): {found.because}"
        data = {"validation": found.id, "verdict": found.verdict, "because": because, "report": report}
        with store.transaction():
            if found.verdict is Verdict.FAIL:
                store.change_knobs(job.id, job.knobs.but(precision=Precision.FP32))
            store.add_event(job.id, None, EventKind.VALIDATED, data, at=self.context.now())
            store.set_reason(job.id, f"its validation is done: {because}")


def _has_verdict(store: Store, job: Job) -> bool:
    return any(event.kind == EventKind.VALIDATED for event in store.events(job.id))


def because(store: Store, job: Job) -> str:
    """Return the reason for a job's first attempt."""
    verdicts = [event.data for event in store.events(job.id) if event.kind == EventKind.VALIDATED]
    if job.spec.recovery.gate == "off" or not verdicts:
        return AS_SUBMITTED
    why, verdict = verdicts[-1]["because"], verdicts[-1]["verdict"]
    if verdict == Verdict.FAIL and job.knobs.precision is Precision.FP32:
        return f"fp32 instead of {job.spec.knobs.precision or 'what it asked for'}: {why}"
    return f"{AS_SUBMITTED}: {why}"
