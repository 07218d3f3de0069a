"""Reads what Slurm says about its jobs: one line of text each, the same in all versions.

The JSON of `squeue` and `sacct` differs between versions, and in some it is wrong about exit codes. Everything here is
pure; what a cluster prints is never trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rung.jobs.model.engine import EndedBy
from rung.jobs.model.terminal_text import clean

# One line per job: number, name, state, why it waits, nodes, when it was submitted, its partitions, our mark. Only the
# mark, which is the last, can have a `|` in it.
QUEUE_FORMAT = "%A|%j|%T|%r|%N|%V|%P|%k"
FIELDS = QUEUE_FORMAT.count("|") + 1
MOST_TEXT = 500


class Phase(StrEnum):
    """Where a batch job is, whatever flags its state has for a moment."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


# Slurm shows flags such as SIGNALING or COMPLETING in place of the state; a job with one of them is not over yet.
WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
ENDED_BY = {
    "COMPLETED": EndedBy.ITSELF,
    "FAILED": EndedBy.ITSELF,
    "TIMEOUT": EndedBy.TIME_LIMIT,
    "DEADLINE": EndedBy.TIME_LIMIT,
    "PREEMPTED": EndedBy.PREEMPTION,
    "REVOKED": EndedBy.PREEMPTION,
    "NODE_FAIL": EndedBy.NODE_FAILURE,
    "BOOT_FAIL": EndedBy.NODE_FAILURE,
    "LAUNCH_FAILED": EndedBy.NODE_FAILURE,
    "CANCELLED": EndedBy.ADMINISTRATOR,
    "OUT_OF_MEMORY": EndedBy.OUT_OF_MEMORY,
}


@dataclass(frozen=True)
class BatchJob:
    """One job of the cluster, as its queue shows it."""

    number: str
    name: str
    state: str
    reason: str = ""
    nodes: str = ""
    submitted: str = ""
    partition: str = ""
    mark: str = ""

    @property
    def phase(self) -> Phase:
        if self.state in ENDED_BY:
            return Phase.ENDED
        return Phase.WAITING if self.state in WAITING else Phase.RUNNING

    @property
    def was_refused(self) -> bool:
        """Tell whether sbatch refused it: for a while, some clusters list such a job as one that failed."""
        return self.state == "FAILED" and not self.nodes

    @property
    def ended_by(self) -> EndedBy | None:
        """Return what ended it; None: it has not ended."""
        return ENDED_BY.get(self.state)


def parse_queue(text: str) -> list[BatchJob]:
    """Return the jobs of `squeue --format QUEUE_FORMAT`; a line that is none is left out."""
    found = (_parse_line(line) for line in text.split("\n"))
    return [job for job in found if job is not None]


def parse_submitted(text: str) -> str | None:
    """Return the number that `sbatch --parsable` prints, with or without the cluster's name behind it."""
    number = text.strip().partition(";")[0]
    return number if is_number(number) else None


def newest(jobs: list[BatchJob], name: str, mark: str) -> BatchJob | None:
    """Return the last submitted job of an attempt. Numbers can come again, so name and mark tell whose it is."""
    # Behind the mark of an attempt, a batch job may say more about itself.
    ours = [job for job in jobs if job.name == name and job.mark.split("@")[0] == mark and not job.was_refused]
    # Should there be two, then one has found that the other runs the attempt, and has ended.
    return max(ours, key=lambda job: (job.phase is not Phase.ENDED, job.submitted, int(job.number)), default=None)


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 12


def _parse_line(line: str) -> BatchJob | None:
    fields = [clean(field).strip()[:MOST_TEXT] for field in line.split("|", FIELDS - 1)]
    if len(fields) != FIELDS or not is_number(fields[0]):
        return None
    # "CANCELLED by 1000" in sacct, "CANCELLED+" where a column is too narrow.
    state = fields[2].split(" ")[0].rstrip("+")
    said = ["" if field in ("(null)", "None", "N/A") else field for field in fields]
    return BatchJob(fields[0], said[1], state, *said[3:])
