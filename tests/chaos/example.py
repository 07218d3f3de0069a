"""A job as it should be, with its ledger, for tests that edit one of the two."""

from __future__ import annotations

from tests.chaos.evidence import Evidence, JobEvidence, Told
from tests.chaos.invariants import violations
from tests.chaos.ledger import runs_of

SUM = "5c1"


def record(t: int, kind: str, pid: int = 10, attempt: int = 1, **facts: object) -> dict:
    return {"t": t, "pid": pid, "attempt": attempt, "kind": kind, **facts}


def start(t: int, pid: int, attempt: int, resumed: object = None, gpus: str = "") -> dict:
    return record(t, "start", pid, attempt, job="a-1", owner=9, resumed=resumed, gpus=gpus, secret="s")


# The first attempt fails with an overflow after its second step, the second goes on from a checkpoint and finishes.
LEDGER = [
    start(1, 10, 1),
    record(2, "line", text="step 1/3 loss 0.9\n"),
    record(3, "saving", file="step_1", step=1, sum=SUM, healthy=True),
    record(4, "line", text="step 2/3 loss 0.8\n"),
    record(5, "fault", fault="overflow", step=3),
    record(6, "end", code=1),
    start(7, 11, 2, {"file": "step_1", "step": 1, "sum": SUM}),
    record(8, "line", 11, 2, text="step 2/3 loss 0.8\n"),
    record(9, "line", 11, 2, text="step 3/3 loss 0.7\n"),
    record(10, "end", 11, 2, code=0),
]
FIRST_LOG = (b"step 1/3 loss 0.9\n", b"step 2/3 loss 0.8\n")
LAST_LOG = (b"step 2/3 loss 0.8\n", b"step 3/3 loss 0.7\n")
FIRST = Told(1, "fault", "fp16_overflow", None, FIRST_LOG)
LAST = Told(2, "succeeded", None, "step_1", LAST_LOG, ("step 2/3 loss 0.8", "step 3/3 loss 0.7"))


def job(ledger: list[dict] = LEDGER, attempts: tuple[Told, ...] = (FIRST, LAST), **fields: object) -> JobEvidence:
    known = {"name": "a", "job_id": "a-1", "state": "SUCCEEDED", "steps": 3, **fields}
    return JobEvidence(attempts=attempts, runs=tuple(runs_of(ledger)), **known)  # type: ignore[arg-type]


def edited(at: int, **facts: object) -> list[dict]:
    """Return the ledger with one record changed."""
    return [{**each, **facts} if number == at else each for number, each in enumerate(LEDGER)]


def found(*jobs: JobEvidence, **fields: object) -> list[str]:
    known = {"most_at_once": 2, "secret": "s", **fields}
    return [each.what for each in violations(Evidence(jobs, **known))]  # type: ignore[arg-type]
