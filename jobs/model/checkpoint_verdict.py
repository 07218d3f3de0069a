"""Defines the verdict on a checkpoint: what the job's own Python found in the file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CheckpointVerdict:
    """`verdict` None: nobody has examined the file yet."""

    verdict: str | None = None
    # The step that the content names, if it names one.
    step: int | None = None
    detail: str = ""
    kind: str = ""


NOT_EXAMINED = CheckpointVerdict()
