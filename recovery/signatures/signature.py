"""Defines a signature: the pattern of a fault's message, and how often it must come to count.

Nothing here decides: messages.py searches the rows, detect.py weighs what they say. How to add one:
docs/adding-a-fault.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from rung.jobs.model.fault import FaultKind


class Role(StrEnum):
    ROOT = "root"  # the cause itself
    NOTICE = "notice"  # a warning that explains the end, if the end comes
    CASCADE = "cascade"  # follows from something else; counts when nothing else is known
    CUT = "cut"  # the frame in which a traceback was cut off; counts when the log ends there
    BACKOFF = "backoff"  # one step that a scaler skipped: healthy by itself, its window decides
    TEARDOWN = "teardown"  # noise of processes that are being ended: never a fault, whatever words it holds
    ADVICE = "advice"  # words before a message that make it talk about a fault: never one


@dataclass(frozen=True)
class Window:
    """How much of a thing makes it a fault, where one line is not enough."""

    # So many in a row; where no good one came before, so many, since a new scaler looks for its scale; so many are
    # enough where the log ends with them.
    consecutive: int = 1
    from_start: int = 0
    at_end: int = 1
    # A rate: more than this share of the recent steps, of which there are at least and at most so many.
    share: float = 0.0
    fewest: int = 0
    most: int = 0
    # A value below this counts; one at or below `deep` is no accident even once, where the log ends with it.
    floor: float = 0.0
    deep: float = 0.0


@dataclass(frozen=True)
class Signature:
    """One row. A line without any of its anchors, in lower case, never meets its pattern."""

    name: str
    fault: FaultKind | None
    role: Role
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    window: Window | None = None


def row(
    name: str,
    fault: FaultKind,
    anchors: str,
    pattern: str,
    role: Role = Role.ROOT,
    window: Window | None = None,
) -> Signature:
    """Return a row that tells of a fault; several anchors are separated by "|"."""
    return Signature(name, fault, role, tuple(anchors.split("|")), re.compile(pattern, re.IGNORECASE), window)


def guard(name: str, role: Role, pattern: str) -> Signature:
    """Return a row that says when a message is none; it is asked only about lines that hold one."""
    return Signature(name, None, role, (), re.compile(pattern, re.IGNORECASE))
