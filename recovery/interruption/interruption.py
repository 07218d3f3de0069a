"""Decides about a run that its site has ended: at a time limit, or for a job that goes first.

Such a run has no fault. It goes on from its newest healthy checkpoint, and costs no budget while it makes progress:
this checkpoint is newer than the one it began with. Several interruptions in a row without progress count as one fault
of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rung.jobs.job import Attempt, Job, Outcome, main_line
from rung.jobs.model.engine import INTERRUPTIONS, EndedBy
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.recovery.decide.checkpoint_choice import Sighting, choose_checkpoint, why_wait
from rung.recovery.decide.decide import Decision, Relaunch, Stop, Wait, decide, with_place
from rung.recovery.decide.treatments import TREATMENTS, Budget
from rung.recovery.decide.wording import with_resume_point

# So many interruptions in a row without progress are one fault of the machine.
IN_VAIN = 3
# What a site does to a run looks like one of these faults; any other has ended the run before.
LOOKS_LIKE = frozenset({Budget.INFRA, Budget.ONCE})
WORDS: Mapping[EndedBy | None, str] = {
    EndedBy.TIME_LIMIT: "its time limit was reached",
    EndedBy.PREEMPTION: "it was preempted",
}


def is_interruption(ended_by: EndedBy | None, fault: Fault | None) -> bool:
    """Tell whether an attempt was interrupted; `fault` is what its log and its exit code show."""
    return ended_by in INTERRUPTIONS and (fault is None or TREATMENTS[fault.kind].budget in LOOKS_LIKE)


def with_faults(attempts: Sequence[Attempt], newest: int) -> list[Attempt]:
    """Return the attempts, of which every IN_VAIN-th interruption in a row without progress has a fault.

    `newest`: the step of the checkpoint that the next attempt would resume from; 0: none.
    """
    line = main_line(attempts)
    begins = [*(attempt.planned_step or 0 for attempt in line[1:]), newest]
    faulty, in_vain = {}, 0
    for attempt, after in zip(line, begins, strict=True):
        interrupted = attempt.outcome is Outcome.INTERRUPTED and attempt.fault is None
        in_vain = in_vain + 1 if interrupted and after <= (attempt.planned_step or 0) else 0
        if in_vain == IN_VAIN:
            faulty[attempt.number] = replace(attempt, fault=_fault(attempt), outcome=Outcome.FAULT)
            in_vain = 0
    return [faulty.get(attempt.number, attempt) for attempt in attempts]


def _fault(attempt: Attempt) -> Fault:
    told = attempt.ended_by in attempt.engine.warns_before
    advice = "save a checkpoint at the signal that comes before" if told else "save checkpoints more often"
    evidence = f"interrupted {IN_VAIN} times in a row without a newer healthy checkpoint ({_why(attempt)}): {advice}"
    return Fault(FaultKind.INFRA_FAULT, evidence, step=attempt.furthest_step)


def decide_interruption(
    job: Job,
    attempts: Sequence[Attempt],
    checkpoints: Sequence[Sighting],
    gpu: Gpu | None,
    other_hosts: Sequence[str] = (),
) -> Decision | Wait | None:
    """Return what to do after an interruption; None: the last attempt was not interrupted."""
    last = attempts[-1]
    if last.outcome is not Outcome.INTERRUPTED:
        return None
    choice = choose_checkpoint(checkpoints, main_line(attempts), None)
    why = why_wait(checkpoints, choice.checkpoint, None)
    if why is not None:
        return Wait(why)
    counted = with_faults(attempts, choice.checkpoint.step if choice.checkpoint else 0)
    fault = counted[-1].fault
    if fault is not None:
        return _with_evidence(fault, decide(job, counted, checkpoints, gpu, other_hosts))
    because = f"interrupted: {_why(last)}; the same knobs again, and no attempt is counted"
    again = Relaunch(None, last.asked, choice.checkpoint, with_resume_point(because, choice))
    return with_place(again, job, counted, checkpoints, other_hosts)


def _with_evidence(fault: Fault, decision: Decision | Wait) -> Decision | Wait:
    """Return a decision whose reason says why the machine is blamed."""
    if isinstance(decision, Stop):
        return replace(decision, diagnosis=f"{fault.evidence}; {decision.diagnosis}")
    return replace(decision, because=f"{fault.evidence}; {decision.because}")


def _why(attempt: Attempt) -> str:
    return WORDS.get(attempt.ended_by, "its site ended it")
