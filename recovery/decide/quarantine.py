"""Finds checkpoints that are verified but not usable: attempts that resumed from one failed right away.

Nothing is stored: it follows from the attempts. A file written again under the same name is another checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rung.jobs.job import Attempt
from rung.jobs.model.fault import Fault
from rung.recovery.decide.treatments import TREATMENTS, Budget, climbs_ladder

QUARANTINED = "quarantined"
# A fault within this many steps of the resume can come from the loaded state.
NEAR_STEPS = 5
# One failure can be chance; when two attempts fail from one file, the file is the cause.
TIMES = 2
# Messages of torch, safetensors, transformers and Lightning when a checkpoint cannot be loaded.
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
    """Why a checkpoint is not used, and when the last attempt that failed on it began."""

    why: str
    tried_at: float

    def applies_to(self, written_at: float) -> bool:
        """Return whether it is still this file, and not a newer one with the same name."""
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
    silent = [each for each in tries if _ended_by_itself(each.fault) and not _went_on(each)]
    soon = [each for each in tries if climbs_ladder(each.fault) and _failed_near(each)]
    if unloaded:
        return _new_mark(unloaded, f"attempt {unloaded[-1].number} could not load it")
    if len(silent) >= TIMES:
        return _new_mark(silent, f"attempts {_numbers(silent)} ended before their first step from it")
    if len(soon) >= TIMES:
        return _new_mark(soon, f"attempts {_numbers(soon)} failed within {NEAR_STEPS} steps of it")
    return None


def _new_mark(tries: Sequence[Attempt], why: str) -> Mark:
    return Mark(why, max((each.started_at for each in tries if each.started_at is not None), default=float("inf")))


def _cannot_load(attempt: Attempt) -> bool:
    fault = attempt.fault
    if fault is None or not _ended_by_itself(fault) or _went_on(attempt):
        return False
    return LOAD_ERROR.search(fault.evidence) is not None


def _ended_by_itself(fault: Fault | None) -> bool:
    return fault is not None and TREATMENTS[fault.kind].budget is Budget.ONCE


def _went_on(attempt: Attempt) -> bool:
    return attempt.furthest_step is not None and attempt.furthest_step > attempt.resume_point


def _failed_near(attempt: Attempt) -> bool:
    assert attempt.fault is not None
    failed = attempt.fault.began if attempt.fault.began is not None else attempt.furthest_step
    return failed is None or failed - attempt.resume_point <= NEAR_STEPS


def _numbers(tries: Sequence[Attempt]) -> str:
    return " and ".join(str(each.number) for each in tries[-TIMES:])
