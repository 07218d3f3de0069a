"""The verdicts on a checkpoint, and the exception that ends a check with one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator

HEALTHY = "healthy"
NO_STEP = "no_step"
POISONED = "poisoned"
CORRUPT = "corrupt"
TRUNCATED = "truncated"
UNFINISHED = "unfinished"
NEEDS_ALLOW_LIST = "needs_allow_list"
REFUSED = "refused"
UNREADABLE = "unreadable"
UNVERIFIED = "unverified"


class Unfit(Exception):
    """Ends the check of one checkpoint with a verdict other than healthy."""

    def __init__(self, verdict: str, detail: str) -> None:
        super().__init__(detail)
        self.verdict, self.detail = verdict, detail


@dataclass
class Content:
    """What a checkpoint holds: its kind, its tensors by name, the plain data that may have the step."""

    kind: str
    tensors: Iterator[tuple[str, Any]]
    state: Any = None
    # Classes that torch.load refuses unless they are on its allow-list; none of them was run.
    foreign: tuple[str, ...] = ()
    note: str = ""


def first_line(error: BaseException) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"
