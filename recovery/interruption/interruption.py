"""Decides about a run that its site has ended: at a time limit, or for a job that goes first.

Such a run has no fault. It goes on from its newest healthy checkpoint, and costs no budget while it makes progress:
this checkpoint is newer than the one it began with. Several interruptions in a row without progress are one fault of
the machine, which is written to the history and decided about like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rung.jobs.job import Attempt, Job, Outcome, main_line
from rung.jobs.model.engine import INTERRUPTIONS, EndedBy
from rung.jobs.model.fault import Fault, FaultKind
from rung.recovery.decide.checkpoint_choice import Sighting, choose_checkpoint, why_wait
from rung.recovery.decide.decide import Relaunch, Wait, with_place
from rung.recovery.decide.treatments import TREATMENTS, Budget

# So many interruptions in a row without progress are one fault of the machine.
IN_VAIN = 3
# What a site does to a run looks like one of these faults; any other has ended the run before.
LOOKS_LIKE = frozenset({Budget.INFRA, Budget.ONCE})
WORDS: Mapping[str | None, str] = {
    EndedBy.TIME_LIMIT: "its time limit was reached",
    EndedBy.PREEMPTION: "it was preempted",
}


def is_interruption(attempt: Attempt, fault: Fault | None) -> bool:
    """Tell whether an attempt that has ended was interrupted; `fault` is what its log and its exit code show.

    One that has made its last step and exited with 0 has finished, whatever its site says.
    """
    finished = attempt.exit_code == 0 and attempt.made_all_steps
    looks_like_it = fault is None or TREATMENTS[fault.kind].budget in LOOKS_LIKE
    return attempt.ended_by in INTERRUPTIONS and looks_like_it and not finished


def why_interrupted(ended_by: EndedBy | str | None) -> str:
    """Return what the site did, in words."""
    return WORDS.get(ended_by, "its site ended it")


def describe_interruption(attempt: Attempt) -> str:
    return f"interrupted: {why_interrupted(attempt.ended_by)}"


def fault_of_trial(attempt: Attempt) -> Fault:
    """Return the fault of a trial that was interrupted: nothing is known of its candidate, so it is run again."""
    return Fault(FaultKind.INFRA_FAULT, describe_interruption(attempt), step=attempt.furthest_step)


def decide_interruption(
    job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Sighting], other_hosts: Sequence[str] = ()
) -> Relaunch | Wait | Fault | None:
    """Return what to do after an interruption; None: the last attempt was not interrupted.

    A fault: it was one in vain too many. It has to be written to the last attempt, and then decided about.
    """
    last, line = attempts[-1], main_line(attempts)
    if last.outcome is not Outcome.INTERRUPTED:
        return None
    choice = choose_checkpoint(checkpoints, line, None)
    why = why_wait(checkpoints, choice.checkpoint, None)
    if why is not None:
        return Wait(why)
    newest = choice.checkpoint.step if choice.checkpoint else 0
    if _in_vain(line, newest) >= IN_VAIN:
        return _fault(last)
    goes_on = f"goes on from step {newest}: " if choice.checkpoint else "begins again "
    because = f"{describe_interruption(last)}; {goes_on}{choice.because}"
    again = Relaunch(None, last.asked, choice.checkpoint, because, tried_until=last.tried_until)
    return with_place(again, job, attempts, checkpoints, other_hosts)


def _in_vain(line: Sequence[Attempt], newest: int) -> int:
    """Return how many interruptions in a row, up to the last one, left no newer healthy checkpoint than at the start.

    `newest`: the step of the checkpoint that the next attempt would resume from; 0: none.
    """
    count, after = 0, newest
    for attempt in reversed(line):
        began = attempt.planned_step or 0
        if attempt.outcome is not Outcome.INTERRUPTED or after > began:
            break
        count, after = count + 1, began
    return count


def _fault(attempt: Attempt) -> Fault:
    told = attempt.ended_by in attempt.engine.warns_before
    advice = "save a checkpoint at the signal that comes before" if told else "save checkpoints more often"
    note = f"interrupted {IN_VAIN} times in a row without a newer healthy checkpoint: {advice}"
    return Fault(FaultKind.INFRA_FAULT, describe_interruption(attempt), step=attempt.furthest_step, note=note)
