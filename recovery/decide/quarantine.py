"""Owns the mark on checkpoints that look sound and are not: verified, but whoever resumed from one failed right away.

Pure: read from the attempts alone, so the mark needs no memory of its own. Nothing is deleted; a file that was written
anew under the same name is another checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rung.jobs.job import Attempt
from rung.jobs.model.fault import Fault
from rung.recovery.decide.treatments import TREATMENTS, Budget

QUARANTINED = "quarantined"
# A fault within this many steps of the resume may have been in the state that was loaded.
NEAR_STEPS = 5
# The same rung could have failed there by chance; two attempts from one file are its own doing.
TIMES = 2
# What torch, safetensors, transformers and Lightning say when a checkpoint cannot be loaded.
LOAD_ERROR = re.compile(
    r"Error\(s\) in loading state_dict|PytorchStreamReader failed|UnpicklingError|Weights only load failed"
    r"|invalid load key|unexpected EOF|storage has wrong byte size|size mismatch for|(?:Missing|Unexpected) key\(s\)"
    r"|SafetensorError|MetadataIncompleteBuffer|HeaderTooLarge|InvalidHeader|EOFError|BadZipFile|CheckpointException"
    r"|loaded state dict (?:contains a parameter group|has a different)|The source state dict is empty"
    r"|Can't find a valid checkpoint|(?:Unable|Failed) to load (?:the )?(?:checkpoint|weights)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Mark:
    """Why a checkpoint is out of use, and when the last attempt began that failed on it."""

    why: str
    tried_at: float

    def holds(self, written_at: float) -> bool:
        """Tell whether it is still this file, and not one of the same name that was written since."""
        return written_at <= self.tried_at


def quarantined(attempts: Sequence[Attempt]) -> dict[str, Mark]:
    """Return the checkpoints whose resume failed right away, by name."""
    tries: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        if attempt.resumed_from is not None and attempt.fault is not None:
            tries.setdefault(attempt.resumed_from, []).append(attempt)
    found = {name: _mark(name, each) for name, each in tries.items()}
    return {name: mark for name, mark in found.items() if mark is not None}


def _mark(name: str, tries: Sequence[Attempt]) -> Mark | None:
    unloaded = [each for each in tries if _cannot_load(each)]
    silent = [each for each in tries if _own_end(each.fault) and not _went_on(each)]
    soon = [each for each in tries if _numeric(each.fault) and _failed_near(each)]
    if unloaded:
        return _made(unloaded, f"attempt {unloaded[-1].number} could not load it")
    if len(silent) >= TIMES:
        return _made(silent, f"attempts {_numbers(silent)} ended before their first step from it")
    if len(soon) >= TIMES:
        return _made(soon, f"attempts {_numbers(soon)} failed within {NEAR_STEPS} steps of it")
    return None


def _made(tries: Sequence[Attempt], why: str) -> Mark:
    return Mark(why, max((each.started_at for each in tries if each.started_at is not None), default=float("inf")))


def _cannot_load(attempt: Attempt) -> bool:
    fault = attempt.fault
    return _own_end(fault) and fault is not None and bool(LOAD_ERROR.search(fault.evidence)) and not _went_on(attempt)


def _own_end(fault: Fault | None) -> bool:
    return fault is not None and TREATMENTS[fault.kind].budget is Budget.ONCE


def _numeric(fault: Fault | None) -> bool:
    return fault is not None and TREATMENTS[fault.kind].budget is Budget.LADDER


def _began(attempt: Attempt) -> int:
    """Return the step that the attempt went on from."""
    return attempt.resumed_step if attempt.resumed_step is not None else attempt.planned_step or 0


def _went_on(attempt: Attempt) -> bool:
    return attempt.furthest_step is not None and attempt.furthest_step > _began(attempt)


def _failed_near(attempt: Attempt) -> bool:
    assert attempt.fault is not None
    failed = attempt.fault.began if attempt.fault.began is not None else attempt.furthest_step
    return failed is None or failed - _began(attempt) <= NEAR_STEPS


def _numbers(tries: Sequence[Attempt]) -> str:
    return " and ".join(str(each.number) for each in tries[-TIMES:])
