"""Tells how an attempt on a cluster is, from the queue and from its record. Pure.

The record is the truth about the command; the queue tells who ended it. What the cluster has forgotten, and what left
no record, is lost.
"""

from __future__ import annotations

import signal

from rung.jobs.model.engine import EndedBy
from rung.jobs.site.refusals import waits_for_ever
from rung.runner.engines.slurm.job_table import BatchJob, Phase
from rung.runner.engines.slurm.site_record import SiteRecord
from rung.runner.seams.engine import Observation, Presence

# A shell reports a signal as 128 and its number.
SIGNALS = range(129, 128 + 65)
GONE = "the batch job is gone from the queue and left no completion record"
STRANGE = (
    "the batch job has ended, and its completion record is no record: the job has put something else in its place, "
    "which is not read"
)
WORDS = {
    EndedBy.TIME_LIMIT: "its time limit was reached",
    EndedBy.PREEMPTION: "it was preempted",
    EndedBy.NODE_FAILURE: "its node failed",
    EndedBy.OUT_OF_MEMORY: "it ran out of memory",
    EndedBy.ADMINISTRATOR: "it was cancelled at the cluster",
}


def is_settled(batch: BatchJob | None, record: SiteRecord) -> bool:
    """Tell whether queue and record agree about the end; if not, the next look may say more."""
    if record.done:
        return batch is None or batch.phase is Phase.ENDED
    # One that never got a node leaves no record.
    return batch is not None and batch.phase is Phase.ENDED and not batch.nodes and not record.began


def observe(batch: BatchJob | None, record: SiteRecord, host: str, *, stopped: bool) -> Observation:
    """Return how the attempt is. `stopped`: Rung has asked it to stop."""
    if record.done:
        return _ended(batch, record)
    if batch is None:
        return Observation(Presence.ABSENT) if not record.began else _lost(batch, record)
    if not (record.began or stopped) and (refused := _refused(batch, host)):
        return refused
    if batch.phase is Phase.ENDED:
        if stopped and not record.began:
            return Observation(Presence.ENDED, None, signal.SIGTERM, "stopped before the command ran")
        return _lost(batch, record)
    if batch.phase is Phase.RUNNING and record.began and not record.prepares:
        node = record.node or batch.nodes or None
        return Observation(Presence.RUNNING, started_at=record.started_at, node=node, gpus=record.gpus)
    why = f" ({batch.reason})" if batch.reason and batch.phase is Phase.WAITING else ""
    where = f"waits in the queue of {host}{why}" if batch.phase is Phase.WAITING else f"begins on {batch.nodes or host}"
    return Observation(Presence.WAITING, detail=f"batch job {batch.number} {where}")


def _refused(batch: BatchJob, host: str) -> Observation | None:
    """Return that the cluster will never run it; None: it may. The reason stays when it is taken out of the queue."""
    advice = waits_for_ever(batch.reason, batch.partition) if not batch.nodes else None
    if advice is None or batch.phase is Phase.RUNNING:
        return None
    why = f"{host}: the cluster accepted batch job {batch.number} and would never start it ({batch.reason}): {advice}"
    return Observation(Presence.REFUSED, detail=why)


def _ended(batch: BatchJob | None, record: SiteRecord) -> Observation:
    code = record.exit_code
    sent = code - 128 if code in SIGNALS and code is not None else None
    by = _ended_by(batch, record, by_signal=sent is not None)
    return Observation(
        Presence.ENDED,
        exit_code=None if sent is not None else code,
        signal=sent,
        detail=WORDS.get(by, "") if by is not None else "",
        started_at=record.started_at,
        ended_at=record.ended_at,
        ended_by=by,
        node=record.node,
        gpus=record.gpus,
    )


def _ended_by(batch: BatchJob | None, record: SiteRecord, *, by_signal: bool) -> EndedBy | None:
    # A run that came to its own end just before its limit does not need to go on.
    if record.exit_code == 0:
        return EndedBy.ITSELF
    by = batch.ended_by if batch is not None else None
    if by not in (None, EndedBy.ITSELF):
        return by
    # It saved and ended. torchrun and srun have other codes for that than the script; a fault of its own is in its log.
    if record.told:
        return EndedBy.TIME_LIMIT
    return None if by_signal else EndedBy.ITSELF


def _lost(batch: BatchJob | None, record: SiteRecord) -> Observation:
    by = batch.ended_by if batch is not None else None
    detail = STRANGE if record.strange else GONE
    if by is not None and by in WORDS:
        detail = f"{WORDS[by]}, and it left no completion record"
    node = record.node or (batch.nodes if batch else "") or None
    by = None if by is EndedBy.ITSELF else by
    started_at, gpus = record.started_at, record.gpus
    return Observation(Presence.LOST, detail=detail, started_at=started_at, ended_by=by, node=node, gpus=gpus)
