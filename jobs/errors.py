"""Owns the errors: things Rung could not do. What happened to a job is a `Fault`, which is data.

RungError                  one line for a person, exit code 2
├── SpecError              a job file that cannot be taken; carries every problem found
├── UsageError             a command asked for something that is not there or makes no sense now
├── StoreError             the store cannot be opened, read or written
│   └── StoreOwned         another controller owns it
├── EngineError            an engine could not start, find or stop an attempt
└── TransitionError        a change of state the table does not know (a bug of ours)
"""

from __future__ import annotations


class RungError(Exception):
    """Says in one line what happened, where, and what to do."""


class SpecError(RungError):
    """Carries every problem of one job file, each a line of its own."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class UsageError(RungError):
    """A command that names no job, or asks what the job's state does not allow."""


class StoreError(RungError):
    """The store refused: unreadable, full disk, newer version."""


class StoreOwned(StoreError):
    """Another controller holds the store's lock."""


class EngineError(RungError):
    """An engine could not do what was asked; nothing was started twice."""


class TransitionError(RungError):
    """An arrow that is not in the table of transitions."""
