"""Tells why a short batch job ended without an answer: for its own sake, or because something else ended it. Pure.

Only an end of its own says something about the command: another try most likely ends the same.
"""

from __future__ import annotations

import re

from rung.jobs.model.engine import EndedBy
from rung.jobs.model.errors import EngineError, HostUnreachable, NeverTaken, RunCutShort
from rung.jobs.site.refusals import read_refusal, waits_for_ever
from rung.runner.engines.slurm.job_table import BatchJob, Phase
from rung.runner.engines.slurm.outcome import WORDS
from rung.runner.engines.slurm.queue import may_take_it_later

# What a node writes into the log of a job that it ends for memory. In the queue, such a job may just have failed.
FOR_MEMORY = re.compile(r"exceeded (?:job |step )?memory limit|oom[-_ ]kill|out of memory", re.IGNORECASE)
# What sbatch says that waits for a job which the controller of the cluster has forgotten in a crash.
FORGOTTEN = "no longer found"
MORE_MEMORY = "ask for more in resources.memory of the job, or as `memory` of the site"
MORE_TIME = "ask for more in resources.time of the job, or as `time` of the site"


def ended_for_memory(batch: BatchJob | None, log: str) -> bool:
    return (batch is not None and batch.ended_by is EndedBy.OUT_OF_MEMORY) or FOR_MEMORY.search(log) is not None


def error_for(host: str, batch: BatchJob | None, said: str, log: str) -> EngineError | HostUnreachable:
    """Return the error for a short job without an answer.

    `batch` is what the queue says about it, `said` the last line that sbatch wrote, `log` the end of its own log.
    """
    if batch is None:
        return _not_submitted(host, said)
    if ended_for_memory(batch, log):
        return RunCutShort(f"{host}: a short job ran out of memory: {MORE_MEMORY}")
    if batch.phase is Phase.WAITING:
        return _no_place(host, batch)
    if batch.phase is Phase.RUNNING:
        return EngineError(f"{host}: a short job did not end in time on {batch.nodes}")
    by = batch.ended_by
    if by is EndedBy.TIME_LIMIT:
        return RunCutShort(f"{host}: a short job reached its time limit: {MORE_TIME}")
    if by is EndedBy.ITSELF:
        last = log.strip().split("\n")[-1].strip()
        return RunCutShort(f"{host}: a short job ended without an answer ({last or batch.reason or batch.state})")
    assert by is not None, "a batch job that is over has an end"
    return EngineError(f"{host}: a short job was ended: {WORDS.get(by, batch.state)}")


def _not_submitted(host: str, said: str) -> EngineError | HostUnreachable:
    if not said or may_take_it_later(said, others=True):
        return HostUnreachable(f"{host}: a short job did not run there: {said or 'it is not in the queue'}")
    if FORGOTTEN in said:
        return EngineError(f"{host}: a short job was ended: the cluster has forgotten it")
    refused = f"{host}: the cluster does not take a short job"
    refusal = read_refusal(said, said, excluding=False)
    return NeverTaken(f"{refused}: {refusal.text}") if refusal else EngineError(f"{refused}: {said}")


def _no_place(host: str, batch: BatchJob) -> EngineError | HostUnreachable:
    advice = waits_for_ever(batch.reason, batch.partition)
    if advice:
        return NeverTaken(f"{host}: the cluster would never start a short job ({batch.reason}): {advice}")
    why = f" ({batch.reason})" if batch.reason else ""
    return HostUnreachable(f"{host}: a short job got no place in the queue in time{why}")
