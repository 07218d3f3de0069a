"""Defines the errors: things that Rung could not do. What happened to a job is a `Fault`, which is data.

RungError                  one line for a person, exit code 2
├── SpecError              a job file that is not valid; carries every problem found
├── UsageError             a command asked for something that does not exist or is not possible now
├── Unfit                  a config file of the script in which a knob cannot be set
├── StoreError             the store cannot be opened, read or written
│   ├── StoreOwned         another controller owns it
│   └── StoreBlocked       it cannot be written now: a full disk, or another process holds it; this passes
├── ControllerError        a controller could not be started or stopped, or its service not installed
├── NotifyError            notify.yaml is not valid or open to others, or no message can be sent
├── InventoryError         a list of hosts that is not valid; carries every problem found
├── EngineError            an engine, or a host that answers, could not do what was asked
│   ├── NeverTaken         a cluster will never take such a job; only a person can change that
│   └── RunCutShort        a short command was ended for its own sake, such as for memory, before it could answer
├── PartNotStarted         one of several hosts could not start its part of an attempt, and nothing of it is left
├── HostError              a host cannot be used now; what runs there may run on
│   ├── HostUnreachable    the host does not answer; it may come back
│   └── HostRefused        the host, its key or our login is refused; only a person can fix that
└── TransitionError        a change of state that is not in the table (a bug in Rung)
"""

from __future__ import annotations


class RungError(Exception):
    """The message says in one line what happened, where, and what to do."""


class SpecError(RungError):
    """Carries every problem of one job file, one line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class InventoryError(RungError):
    """Carries every problem of one list of hosts, one line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class UsageError(RungError):
    """A command names no job, or asks for something that the job's state does not allow."""


class ConfigFileError(RungError):
    """A config file cannot be read, or does not have the single value that the job file names."""


class StoreError(RungError):
    """The store cannot be used: unreadable, full disk, newer version."""


class StoreOwned(StoreError):
    """Another controller holds the store's lock."""


class StoreBlocked(StoreError):
    """The store cannot be read or written now, because the disk is full or another process holds it. This passes."""


class ControllerError(RungError):
    """A controller in the background could not be started or stopped, or its service could not be installed."""


class NotifyError(RungError):
    """The file that says who is told cannot be used, or messages cannot be sent. It shows no value of that file."""


class EngineError(RungError):
    """An engine could not do what was asked; nothing was started twice."""


class NeverTaken(EngineError):
    """A cluster will never take such a job. It says what to do; neither waiting nor another try helps."""


class PartNotStarted(RungError):
    """One of several hosts could not start its part of an attempt. The other parts are gone; it is over."""


class RunCutShort(EngineError):
    """A short command on a host was ended for its own sake, such as for memory: another try most likely ends the same.

    `output` is what it had printed before.
    """

    output: str = ""


class HostError(RungError):
    """A host cannot be used now. This says nothing about what runs there."""


class HostUnreachable(HostError):
    """The host does not answer. This may pass."""


class HostRefused(HostError):
    """The host key is unknown or changed, or the login is not accepted. Waiting does not help."""


class TransitionError(RungError):
    """A change of state that is not in the table of transitions."""
