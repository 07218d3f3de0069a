"""Chooses the checkpoint to resume from: the newest one that is verified and older than the fault.

The job's own environment verifies checkpoints; this module only reads the verdicts. Nothing is ever deleted.

A search has three kinds of answers, and they are three types: nothing there (an empty sequence), there but bad (a
`Checkpoint` with such a verdict), and could not ask (an `Unseen`). Only the first two may lead to a start from scratch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rung.jobs.job import Attempt
from rung.recovery.decide.quarantine import QUARANTINED, quarantined
from rung.recovery.decide.treatments import climbs_ladder

HEALTHY = "healthy"
# The job's own environment could not read it. It can be verified again later.
UNVERIFIED = "unverified"
# Loading it would run code, or checking it would take too much. The history says which.
REFUSED = "refused"
# Whole and finite. Missing parts are reported, but the checkpoint is used.
SOUND = frozenset({HEALTHY, "needs_allow_list", "no_step"})
# The residence of a copy on the controller's machine; no host has an empty name.
MIRROR = ("", 0)
# A run that reports no saves and has made fewer steps than this has most likely saved nothing.
FEW_STEPS = 10
NAMED = 3


@dataclass(frozen=True)
class Checkpoint:
    """A file or folder that a job wrote, with its verdict. `verdict` None: not verified yet."""

    name: str
    step: int
    written_at: float
    verdict: str | None = None
    detail: str = ""
    # The host it is on, and which residence of the job there. None: where the last attempt was.
    residence: tuple[str, int] | None = None
    # Where the step comes from: a record of the job ("saved"), the "content", the "name", or the "time" of writing.
    step_from: str = "content"
    kind: str = ""
    size: int = 0


@dataclass(frozen=True)
class Unseen:
    """A residence that could not be asked about its checkpoints: its host does not answer, or could not examine them.

    What it holds is not known, which is not the same as nothing.
    """

    host: str
    why: str
    # Since when the host has not answered, as text for people; empty where it answers, or that is not known.
    since: str = ""
    # It has not answered for longer than the job waits for it. `abandoned`: a person has given it up.
    given_up: bool = False
    abandoned: bool = False
    # The checkpoints that are known to have been written there, and whether there may be any, known or not.
    saved: tuple[str, ...] = ()
    may_have: bool = True


# One answer of a search.
Sighting = Checkpoint | Unseen


@dataclass(frozen=True)
class Choice:
    checkpoint: Checkpoint | None
    because: str


def resume_candidates(
    checkpoints: Sequence[Checkpoint], attempts: Sequence[Attempt], limit: int | None
) -> list[Checkpoint]:
    """Return the checkpoints that are old enough, newest first, whatever their verdict; some become QUARANTINED."""
    old_enough = [each for each in checkpoints if limit is None or each.step < limit]
    marks = quarantined(attempts)
    marked = [
        replace(checkpoint, verdict=QUARANTINED, detail=marks[checkpoint.name].why)
        if checkpoint.name in marks and marks[checkpoint.name].applies_to(checkpoint.written_at)
        else checkpoint
        for checkpoint in old_enough
        if not _is_tainted(checkpoint, attempts)
    ]
    return sorted(marked, key=lambda checkpoint: (checkpoint.step, checkpoint.written_at), reverse=True)


def _is_tainted(checkpoint: Checkpoint, attempts: Sequence[Attempt]) -> bool:
    """Return whether an attempt wrote this file after its numbers had gone wrong, even if all values are finite."""
    for attempt in attempts:
        began = attempt.fault.began if attempt.fault and climbs_ladder(attempt.fault) else None
        if began is None or attempt.started_at is None:
            continue
        ended = attempt.ended_at if attempt.ended_at is not None else float("inf")
        if began <= checkpoint.step and attempt.started_at <= checkpoint.written_at <= ended:
            return True
    return False


def unseen_among(sightings: Sequence[Sighting]) -> list[Unseen]:
    return [each for each in sightings if isinstance(each, Unseen)]


def choose_checkpoint(sightings: Sequence[Sighting], attempts: Sequence[Attempt], limit: int | None) -> Choice:
    """Return the newest sound checkpoint older than `limit` of those that were seen, and why it is that one."""
    unseen = unseen_among(sightings)
    choice = _choose([each for each in sightings if isinstance(each, Checkpoint)], attempts, limit)
    if not unseen:
        return choice
    hosts = " and ".join(dict.fromkeys(each.host for each in unseen))
    if choice.checkpoint is not None:
        return replace(choice, because=f"{choice.because} (what is on {hosts} cannot be seen)")
    return replace(choice, because=_why_scratch(unseen, hosts))


def _why_scratch(unseen: Sequence[Unseen], hosts: str) -> str:
    if any(each.abandoned for each in unseen):
        return f"from scratch: a person gave up {hosts}, and no healthy copy is kept here"
    if any(each.may_have for each in unseen):
        return "from scratch: no checkpoint is worth it"
    return f"from scratch: nothing is known to be saved on {hosts}, which cannot be asked"


def _choose(checkpoints: Sequence[Checkpoint], attempts: Sequence[Attempt], limit: int | None) -> Choice:
    passed: list[str] = []
    for checkpoint in resume_candidates(checkpoints, attempts, limit):
        if checkpoint.verdict in SOUND:
            older = f"older than step {limit}" if limit is not None else "the newest"
            copy = " (a copy that is kept here)" if checkpoint.residence == MIRROR else ""
            notes = copy + _step_is_estimated(checkpoint) + _passed_over(passed)
            return Choice(checkpoint, f"{checkpoint.name} is verified and {older}{notes}")
        why = f", {checkpoint.detail}" if checkpoint.verdict in (UNVERIFIED, QUARANTINED, REFUSED) else ""
        passed.append(f"{checkpoint.name} is {checkpoint.verdict or UNVERIFIED}{why}")
    if passed:
        return Choice(None, f"from scratch: no healthy checkpoint{_passed_over(passed)}")
    if checkpoints:
        return Choice(None, f"from scratch: no checkpoint is {f'older than step {limit}' if limit else 'worth it'}")
    return Choice(None, "from scratch: the job has written no checkpoint")


def why_wait(sightings: Sequence[Sighting], chosen: Checkpoint | None, limit: int | None) -> str | None:
    """Return why nothing can be decided yet: a host that may have what is missing could not be asked. None: it can.

    A host that is not given up may have a newer checkpoint than the chosen one. One that is given up is waited for only
    by a job that would lose its progress: there is no other checkpoint, and one could be used (`limit`).
    """
    unseen = unseen_among(sightings)
    scratch = chosen is None and limit != 0
    copy = ", and no healthy copy is kept here" if chosen is None else ""
    for each in unseen:
        if not each.abandoned and (not each.given_up or (scratch and each.may_have)):
            return describe_wait(each, copy)
    return None


def describe_wait(unseen: Unseen, more: str) -> str:
    """Describe what a job waits for, and what would free it."""
    rest = f" and {len(unseen.saved) - NAMED} more" if len(unseen.saved) > NAMED else ""
    names = f" ({', '.join(unseen.saved[:NAMED])}{rest})" if unseen.saved else ""
    since = f", unreachable since {unseen.since}" if unseen.since else ""
    place = f"{unseen.host}{since} ({unseen.why})"
    what = f"its checkpoints there{names} cannot be seen{more}"
    way_out = "or without it after `rung cancel` and `rung retry --give-up-hosts`"
    return f"waits for {place}: {what}; it goes on when {unseen.host} answers, {way_out}"


def may_have_saved(attempts: Sequence[Attempt], every: int | None) -> bool:
    """Return whether these attempts may have saved checkpoints; False only if their logs speak against it."""
    return any(attempt.saved or _steps_made(attempt) >= (every or FEW_STEPS) for attempt in attempts)


def _steps_made(attempt: Attempt) -> float:
    if attempt.furthest_step is None:
        # A run that prints losses without steps may be anywhere.
        return math.inf if attempt.progress_at is not None else 0
    return attempt.furthest_step - attempt.resume_point


def _step_is_estimated(checkpoint: Checkpoint) -> str:
    estimated = checkpoint.step_from == "time"
    return " (it does not state its step, which is estimated from when it was written)" if estimated else ""


def _passed_over(passed: list[str]) -> str:
    if not passed:
        return ""
    more = f" and {len(passed) - 3} more" if len(passed) > 3 else ""
    return f" (stepped over: {', '.join(passed[:3])}{more})"


def recorded_step(name: str, written_at: float, attempts: Sequence[Attempt]) -> int | None:
    """Return the step that the job recorded when it wrote this file; later attempts reuse names."""
    for attempt in reversed(attempts):
        if attempt.started_at is not None and written_at < attempt.started_at:
            continue
        for file, step in reversed(attempt.saved.items()):
            if name in file.split("/"):
                return step
    return None


def estimated_step(written_at: float, attempts: Sequence[Attempt]) -> int:
    """Return the step that the attempt had reached when it wrote the file, rounded up."""
    for attempt in reversed(attempts):
        if attempt.started_at is None or written_at < attempt.started_at:
            continue
        first = attempt.first_step if attempt.first_step is not None else attempt.resumed_step or 0
        furthest = attempt.furthest_step if attempt.furthest_step is not None else first
        begun = attempt.progress_at if attempt.progress_at is not None else attempt.started_at
        share = 1.0
        if attempt.ended_at is not None and attempt.ended_at > begun:
            share = min(max((written_at - begun) / (attempt.ended_at - begun), 0.0), 1.0)
        return first + math.ceil(share * (furthest - first))
    return 0
