"""Owns the errors: things Rung could not do. What happened to a job is a `Fault`, which is data.

RungError                  one line for a person, exit code 2
├── SpecError              a job file that cannot be taken; carries every problem found
├── UsageError             a command asked for something that is not there or makes no sense now
├── Unfit                  a config file of the script's in which a knob cannot be set
├── StoreError             the store cannot be opened, read or written
│   └── StoreOwned         another controller owns it
├── InventoryError         a list of hosts that cannot be taken; carries every problem found
├── EngineError            an engine could not start, find or stop an attempt
│   ├── HostUnreachable    the host does not answer now; it may come back, and nothing is dead for it
│   └── HostRefused        the host, or its key, is refused; only a person can mend that
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


class InventoryError(RungError):
    """Carries every problem of one list of hosts, each a line of its own."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class UsageError(RungError):
    """A command that names no job, or asks what the job's state does not allow."""


class Unfit(RungError):
    """A config file that cannot be read, or has no such single value, as the job file says it has."""


class StoreError(RungError):
    """The store refused: unreadable, full disk, newer version."""


class StoreOwned(StoreError):
    """Another controller holds the store's lock."""


class EngineError(RungError):
    """An engine could not do what was asked; nothing was started twice."""


class HostUnreachable(EngineError):
    """No answer from the host: a state that may pass, never a verdict on what runs there."""


class HostRefused(EngineError):
    """An unknown or changed host key, or a login that is not accepted: time will not mend it."""


class TransitionError(RungError):
    """An arrow that is not in the table of transitions."""
