"""Decides when a cured run tries to be faster again, and what a fault then means.

The original precision or lr is tried once per job. Places in FP32 are taken off their list one by one, each once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rung.jobs.job import Attempt, Job, Outcome
from rung.jobs.model.knobs import NOT_SET, Knobs, Precision
from rung.recovery.decide.checkpoint_choice import Sighting, choose_checkpoint
from rung.recovery.decide.decide import Relaunch, Wait, with_place
from rung.recovery.decide.incident import incident_after
from rung.recovery.decide.replay_cure import listed
from rung.recovery.decide.resume_limit import resume_limit
from rung.recovery.decide.script_values import read_script_values
from rung.recovery.decide.treatments import TREATMENTS, Budget


@dataclass(frozen=True)
class Tried:
    """What a job's earlier steps back have tried: these places in FP16, and the original precision or lr."""

    places: frozenset[str] = frozenset()
    knobs: bool = False


NOTHING = Tried()


def tried_before(attempts: Sequence[Attempt]) -> Tried:
    """Return what these attempts have tried, whether it held or not."""
    tried, cured = NOTHING, Knobs()
    for attempt in attempts:
        if attempt.stepped_back:
            gone = frozenset(_places(cured)) - frozenset(_places(attempt.asked))
            others = _without_places(attempt.asked) != _without_places(cured)
            tried = Tried(tried.places | gone, tried.knobs or others)
        if _is_stopped(attempt):
            cured = attempt.asked
    return tried


def faster_knobs(first: Knobs, now: Knobs, tried: Tried = NOTHING, own: Precision | None = None) -> Knobs | None:
    """Return the knobs to go back to: the original precision, one place less in FP32, or the original lr.

    `own`: the precision of the script itself. Where Rung asks for the same one, that is no wider.
    """
    is_wider = (now.precision or own, now.params) != (first.precision or own, first.params)
    if is_wider and not tried.knobs:
        return now.but(precision=first.precision, params=first.params, matmul=first.matmul)
    # The last place was the last to be needed; those that only came near FP16's limit are at the end.
    places, kept = _places(now), {*_places(first), *tried.places}
    last = next((place for place in reversed(places) if place not in kept), None)
    if last is not None:
        left = ",".join(place for place in places if place != last)
        return now.but(fp32_modules=left) if left else _without_places(now)
    return now.but(lr=first.lr) if now.lr != first.lr and not is_wider and not tried.knobs else None


def _without_places(knobs: Knobs) -> Knobs:
    return knobs.but(fp32_modules=None, matmul=None)


def _places(knobs: Knobs) -> list[str]:
    return knobs.fp32_modules.split(",") if knobs.fp32_modules else []


def _is_stopped(attempt: Attempt) -> bool:
    """Return whether a healthy attempt was stopped to step back."""
    return attempt.outcome is Outcome.STOPPED and attempt.level_at is None


def is_due(job: Job, attempts: Sequence[Attempt]) -> bool:
    """Return whether the last of these attempts has been clean long enough to step back."""
    clean, last = job.spec.recovery.step_back, attempts[-1]
    since = clean_since(job, attempts)
    if clean is None or since is None or last.fault is not None or last.furthest_step is None:
        return False
    # With fewer places still more numbers would not be those of the script.
    if last.saturation is not None and last.saturation.warning:
        return False
    return last.furthest_step - since >= clean and _next_knobs(job, attempts) is not None


def _next_knobs(job: Job, attempts: Sequence[Attempt]) -> Knobs | None:
    own = read_script_values(attempts).precision
    return faster_knobs(job.knobs, attempts[-1].asked, tried_before(attempts), own)


def clean_since(job: Job, attempts: Sequence[Attempt]) -> int | None:
    """Return the step since which the last attempt is well: that of its fault, or at which it stepped back."""
    last = attempts[-1]
    if last.stepped_back:
        return last.resume_point
    return cured_fault_step(job, attempts) if last.recovered else None


def cured_fault_step(job: Job, attempts: Sequence[Attempt]) -> int | None:
    """Return the step of the fault that the last attempt has passed; None when there was none."""
    incident = incident_after(attempts[:-1], job.knobs)
    return incident.furthest_fault_step if incident.root_fault is not None else None


def is_possible(job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Sighting]) -> bool:
    """Return whether there is a healthy checkpoint after the fault or the last step back: no progress is lost."""
    since, found = clean_since(job, attempts), choose_checkpoint(checkpoints, attempts, None).checkpoint
    return since is not None and found is not None and found.step > since


def describe_step_back(job: Job, attempts: Sequence[Attempt]) -> str:
    """Describe the step back and how many clean steps came before it."""
    last, since, after = attempts[-1], clean_since(job, attempts), _next_knobs(job, attempts)
    assert after is not None and since is not None and last.furthest_step is not None
    began = "step back" if last.stepped_back else "fault"
    changes = _describe_changes(last.asked, after)
    return f"{last.furthest_step - since} clean steps since the {began} at step {since}: stepping back ({changes})"


def _describe_changes(before: Knobs, after: Knobs) -> str:
    if gone := _gone(before, after):
        rest = tuple(_places(after))
        stays = f"{listed(rest)} stay{'s' if len(rest) == 1 else ''} in FP32" if rest else "no place is left in FP32"
        return f"{listed(gone)} in FP16 again; {stays}"
    pairs = after.changes_from(before).items()
    return ", ".join(f"{name} {old} -> {NOT_SET if new is None else new}" for name, (old, new) in pairs)


def _gone(before: Knobs, after: Knobs) -> tuple[str, ...]:
    """Return the places that are no longer in FP32."""
    return tuple(place for place in _places(before) if place not in _places(after))


def decide_step_back(
    job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Sighting], other_hosts: Sequence[str] = ()
) -> Relaunch | Wait | None:
    """Return the next launch of a job that steps back or whose step back failed; None for any other job."""
    last = attempts[-1]
    fault = last.fault
    if _is_stopped(last):
        decision = _step_back(job, attempts, checkpoints)
    elif last.stepped_back and fault is not None and TREATMENTS[fault.kind].budget in (Budget.LADDER, Budget.ONCE):
        decision = _fall_back(job, attempts, checkpoints)
    else:
        return None
    return with_place(decision, job, attempts, checkpoints, other_hosts)


def _step_back(job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Sighting]) -> Relaunch:
    last, choice = attempts[-1], choose_checkpoint(checkpoints, attempts, None)
    after = _next_knobs(job, attempts)
    if after is None or not is_possible(job, attempts, checkpoints):
        because = f"no healthy checkpoint is new enough to step back: the same knobs again; {choice.because}"
        return Relaunch(None, last.asked, choice.checkpoint, because)
    because = f"{describe_step_back(job, attempts)}; {choice.because}"
    return Relaunch(None, after, choice.checkpoint, because, stepped_back=True)


def _fall_back(job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Sighting]) -> Relaunch:
    """Return to the knobs that cured the run."""
    last, fault = attempts[-1], attempts[-1].fault
    assert fault is not None
    cured = next(each.asked for each in reversed(attempts) if _is_stopped(each))
    choice = choose_checkpoint(checkpoints, attempts, resume_limit(attempts, job.knobs))
    at = f" at step {fault.step}" if fault.step is not None else ""
    gone = _gone(cured, last.asked)
    restored = f"FP32 in {listed(gone)}" if gone else "the knobs that had cured it"
    because = f"{fault.kind}{at} after stepping back: {restored} again, for good; {choice.because}"
    return Relaunch(None, cured, choice.checkpoint, because)
