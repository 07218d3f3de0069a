"""Sees by files on this machine which attempts have printed something or ended, without asking any engine.

A running attempt to which nothing happens costs a few calls of `stat`, and no turn.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

# A read costs more than the few lines that it brings. So beside many others a log that grows all the time is not read
# at each look: with so many attempts at every second one, and with more of them at every third, but no later.
FEW, MOST_RESTS = 25, 2


@dataclass
class _Glanced:
    """What a glance has shown of one attempt."""

    number: int
    log: str
    # Files of which one appears or vanishes when the attempt ends, each with whether it was there at first.
    signs: tuple[tuple[str, bool], ...]
    # How much of the log has been read, and how much there is.
    read: int
    size: int = 0
    ended: bool = False
    # At how many of the next looks the log is left alone.
    rests: int = 0


class Glance:
    def __init__(self) -> None:
        self._glanced: dict[str, _Glanced] = {}

    def __len__(self) -> int:
        """Return how many attempts it looks at."""
        return len(self._glanced)

    def knows(self, job_id: str, number: int) -> bool:
        return job_id in self._glanced and self._glanced[job_id].number == number

    def add(self, job_id: str, number: int, log: Path, signs: tuple[str, ...]) -> None:
        """Look at a running attempt from now on."""
        seen = tuple((sign, os.access(sign, os.F_OK)) for sign in signs)
        self._glanced[job_id] = _Glanced(number, str(log), seen, read=0)

    def forget(self, job_id: str) -> None:
        self._glanced.pop(job_id, None)

    def has_read(self, job_id: str, offset: int) -> None:
        """Note how much of a log has been read."""
        if glanced := self._glanced.get(job_id):
            glanced.read = offset
            glanced.size = max(glanced.size, offset)

    def growth(self, job_id: str) -> int | None:
        """Return how many bytes of its log were unread at the last look; None: it has ended, or is not looked at."""
        glanced = self._glanced.get(job_id)
        return None if glanced is None or glanced.ended else glanced.size - glanced.read

    def look(self, only: Collection[str] | None = None) -> list[str]:
        """Look at all of them, or only at some; return the jobs to which something has happened."""
        rests = min(MOST_RESTS, len(self._glanced) // FEW)
        looked_at = self._glanced if only is None else [each for each in only if each in self._glanced]
        return [job_id for job_id in looked_at if _has_changed(self._glanced[job_id], rests)]


def _has_changed(glanced: _Glanced, rests: int) -> bool:
    """Look at one attempt; True: it has ended, or its log is to be read.

    `rests`: at how many looks a log is left alone after one that found it grown, unless not all of it was read.
    """
    glanced.ended = False
    for sign, was_there in glanced.signs:
        # Half the time of `stat`, which raises an error for what is not there.
        if os.access(sign, os.F_OK) is not was_there:
            glanced.ended = True
    if glanced.rests and glanced.size <= glanced.read:
        glanced.rests -= 1
        return glanced.ended
    try:
        glanced.size = os.stat(glanced.log).st_size  # noqa: PTH116 - thousands of times a second
    except OSError:
        glanced.size = 0
    # A copy that has grown so long that it goes on in another file is read when its engine is asked.
    has_more = glanced.size > glanced.read
    glanced.rests = rests if has_more else 0
    return glanced.ended or has_more
