"""Defines a signature: the pattern of a fault's message, and how often it must occur to count.

search.py searches the rows, and recovery/detect decides. How to add one: docs/adding-a-fault.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from rung.jobs.model.fault import FaultKind


class Role(StrEnum):
    ROOT = "root"  # the cause itself
    NOTICE = "notice"  # a warning that is the cause when the run ends after it
    CASCADE = "cascade"  # follows from another fault; counts when no other is known
    CUT = "cut"  # the frame in which a traceback was cut off; counts when the log ends there
    BACKOFF = "backoff"  # one step that a scaler skipped: healthy, but its window can make it a fault
    TEARDOWN = "teardown"  # from processes that are being ended: never a fault, whatever the text
    ADVICE = "advice"  # text around a message that only talks about a fault: never one


@dataclass(frozen=True)
class Window:
    """How many occurrences make a fault, where one line is not enough."""

    # How many in a row; how many when there was no good one before, because a new scaler first lowers its scale; how
    # many at the end of a log.
    consecutive: int = 1
    from_start: int = 0
    at_end: int = 1
    # A rate: more than this share of the recent steps, of at least `fewest` and at most `most` steps.
    share: float = 0.0
    fewest: int = 0
    most: int = 0
    # A value below this counts; at the end of a log a single one at or below `deep` is enough.
    floor: float = 0.0
    deep: float = 0.0


@dataclass(frozen=True)
class Signature:
    """One row. Its pattern is tried only on lines that have one of its anchors, in lower case."""

    name: str
    fault: FaultKind | None
    role: Role
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    window: Window | None = None
    # Whether it counts only in a training that has made steps: before them it is about the data or a setting.
    after_steps: bool = False


def row(
    name: str,
    fault: FaultKind,
    anchors: str,
    pattern: str,
    role: Role = Role.ROOT,
    window: Window | None = None,
) -> Signature:
    """Return a row for a fault; several anchors are separated by "|"."""
    return Signature(name, fault, role, tuple(anchors.split("|")), re.compile(pattern, re.IGNORECASE), window)


def after_steps(signature: Signature) -> Signature:
    """Return a row that counts only in a training that has made steps."""
    return replace(signature, after_steps=True)


def guard(name: str, role: Role, pattern: str) -> Signature:
    """Return a row that rules a message out; it is tried only on lines with a message."""
    return Signature(name, None, role, (), re.compile(pattern, re.IGNORECASE))
