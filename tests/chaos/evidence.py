"""What the invariants are checked on: what the ledgers say, what the harness did, and what Rung says, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.chaos.ledger import Run

# What the harness can do to one attempt.
JOB_KILLED, WRAPPER_KILLED, DISK_FULL, DAMAGED_LATE = "job_killed", "wrapper_killed", "disk_full", "damaged_late"
CONTAINER_KILLED, CONTAINER_REMOVED = "container_killed", "container_removed"
# What it can do to the host of an attempt.
POWER_LOST, ENGINE_KILLED, HOST_DISK_FULL = "power_lost", "engine_killed", "host_disk_full"
FROZEN, CUT, LOGIN_KILLED = "frozen", "cut", "login_killed"
# What it can do to the batch job of an attempt, to its node, and to the controller of the cluster.
CANCELLED_THERE, REQUEUED, PREEMPTED, TIME_UP = "cancelled_there", "requeued", "preempted", "time_up"
NODE_FAILED, FORGOTTEN = "node_failed", "forgotten"
ENDED_THERE = (CANCELLED_THERE, REQUEUED, PREEMPTED, TIME_UP, NODE_FAILED, FORGOTTEN)
# Those that may end an attempt before it has recorded its end.
ENDS_IT = (
    *(WRAPPER_KILLED, DISK_FULL, CONTAINER_KILLED, CONTAINER_REMOVED, POWER_LOST, ENGINE_KILLED, HOST_DISK_FULL),
    *ENDED_THERE,
)
# Those while which nobody can ask the host about it.
AWAY = (POWER_LOST, ENGINE_KILLED, FROZEN, CUT, LOGIN_KILLED)


@dataclass(frozen=True)
class Told:
    """What Rung says about one attempt."""

    number: int
    outcome: str
    fault: str | None = None
    resumed_from: str | None = None
    # The lines of its log, without those that the harness put there; those of `rung logs`, None: not asked.
    log: tuple[bytes, ...] = ()
    shown: tuple[str, ...] | None = None
    # Whether Rung gave it up with its host, and whether its log says that it may lack its last lines.
    host_lost: bool = False
    incomplete: bool = False


@dataclass(frozen=True)
class JobEvidence:
    """One job that a person submitted."""

    name: str
    job_id: str | None
    state: str = ""
    # Whether `rung launch` said that it was submitted, and how often a person asked for other things.
    launched: bool = True
    cancels: int = 0
    retries: int = 0
    # How often Rung says that it has ended.
    ends: int = 1
    attempts: tuple[Told, ...] = ()
    runs: tuple[Run, ...] = ()
    steps: int = 0
    # What the harness did to each attempt.
    injected: Mapping[int, frozenset[str]] = field(default_factory=dict)
    # The exit codes that the wrappers on hosts have recorded, by attempt.
    recorded: Mapping[int, int] = field(default_factory=dict)

    def was(self, attempt: int, *kinds: str) -> bool:
        return bool(self.injected.get(attempt, frozenset()) & set(kinds))

    def was_lost(self, attempt: int) -> bool:
        """Tell whether Rung gave an attempt up with its host, and its host was away."""
        return self.was(attempt, *AWAY) and any(told.host_lost for told in self.attempts if told.number == attempt)


@dataclass(frozen=True)
class Evidence:
    """A whole run of the harness, after all has settled."""

    jobs: tuple[JobEvidence, ...]
    # How many jobs without a GPU may run at once, and the sum of the secret that each has to get.
    most_at_once: int
    secret: str
    # What is left, each as one line for a person.
    leases: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    on_hosts: tuple[str, ...] = ()
    drafts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    # Controllers that ended by themselves, and whether all jobs came to their end.
    controllers: tuple[str, ...] = ()
    unsettled: tuple[str, ...] = ()
