"""The kinds of engines, and what each can do. Code asks for what an engine can do, never for its name.

A capability is listed here only if something reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class PlacedBy(StrEnum):
    """Who chooses the GPUs of an attempt."""

    RUNG = "rung"  # Rung leases them by UUID before the start
    SITE = "site"  # the site gives what is asked for; which node and GPUs these are is known after the start


class FilesAt(StrEnum):
    """Where the files of a job are, and from where its engine answers."""

    HERE = "here"  # on this machine, which answers at once
    HOST = "host"  # on a host: every question takes time, and may get no answer


class LogAt(StrEnum):
    """Where the output of a command goes."""

    FILE = "file"  # into the log of the attempt
    OUTPUT = "output"  # the engine keeps the output of the first process, and it is copied from there
    RECORD = "record"  # into a file beside the record of the attempt on its host, and it is copied from there


class EndedBy(StrEnum):
    """What ended an attempt that Rung did not stop, where its engine can tell."""

    ITSELF = "itself"
    OUT_OF_MEMORY = "out_of_memory"
    NODE_FAILURE = "node_failure"
    TIME_LIMIT = "time_limit"
    PREEMPTION = "preemption"
    ADMINISTRATOR = "administrator"


# Ends that say nothing about the run: it goes on from its last checkpoint.
INTERRUPTIONS = frozenset({EndedBy.TIME_LIMIT, EndedBy.PREEMPTION})


# The signal that tells a job that its time is nearly up (RUNG_SAVE_SIGNAL), and how one exits that has saved at it. No
# framework uses this real-time signal: USR1 and USR2 make some of them queue their job again. Its default action ends a
# process, so an engine sends it only to those that have a handler for it, as /proc shows.
SAVE_SIGNAL, SAVED_EXIT = 45, 85


class Ask(StrEnum):
    """What a job file may ask for and not every engine can do."""

    VOLUMES = "volumes"
    NO_NETWORK = "network: none"
    PIDS = "resources.pids"
    GPU_TRAITS = "resources.gpu without a type, or by capability or memory"
    TIME = "resources.time"
    NODES = "resources.nodes"
    SLURM = "slurm"


@dataclass(frozen=True)
class EngineKind:
    """A kind of engine. A host has one, and every attempt there has that of its host."""

    name: str
    takes_image: bool
    needs_image: bool
    can_do: frozenset[Ask]
    placed_by: PlacedBy
    files: FilesAt
    log: LogAt
    # What can end an attempt, as far as the engine can tell, and before which of these it sends SAVE_SIGNAL.
    ends: frozenset[EndedBy]
    warns_before: frozenset[EndedBy] = frozenset()

    def takes(self, *, image: bool) -> bool:
        """Tell whether it runs jobs with an image, or jobs without one."""
        return self.takes_image if image else not self.needs_image


PROCESS = EngineKind(
    name="process",
    takes_image=False,
    needs_image=False,
    can_do=frozenset({Ask.GPU_TRAITS}),
    placed_by=PlacedBy.RUNG,
    files=FilesAt.HERE,
    log=LogAt.FILE,
    ends=frozenset({EndedBy.ITSELF, EndedBy.NODE_FAILURE}),
)
# Several nodes only where hosts share a folder, see `Host.can_do`.
DOCKER = EngineKind(
    name="docker",
    takes_image=True,
    needs_image=True,
    can_do=frozenset({Ask.VOLUMES, Ask.NO_NETWORK, Ask.PIDS, Ask.GPU_TRAITS, Ask.NODES}),
    placed_by=PlacedBy.RUNG,
    files=FilesAt.HOST,
    log=LogAt.OUTPUT,
    ends=frozenset({EndedBy.ITSELF, EndedBy.OUT_OF_MEMORY}),
)
# What a host can do of this depends on how its site starts jobs, see `Host.can_do`.
SLURM = EngineKind(
    name="slurm",
    takes_image=True,
    needs_image=False,
    can_do=frozenset({Ask.VOLUMES, Ask.NO_NETWORK, Ask.TIME, Ask.NODES, Ask.SLURM}),
    placed_by=PlacedBy.SITE,
    files=FilesAt.HOST,
    log=LogAt.RECORD,
    ends=frozenset(EndedBy),
    warns_before=frozenset({EndedBy.TIME_LIMIT, EndedBy.PREEMPTION}),
)
ENGINES: Mapping[str, EngineKind] = {kind.name: kind for kind in (PROCESS, DOCKER, SLURM)}
# The engines that the list of hosts may name: those that `runner/engine_pool.py` can make. The first one is that of a
# host which names none.
HOST_ENGINES: tuple[EngineKind, ...] = (DOCKER, SLURM)
