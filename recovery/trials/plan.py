"""Plans the trials after a fault: whether there are any, of which candidates, and over which steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from rung.jobs.job import Attempt, Job
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.trial import Candidate, Trial
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.trials_spec import FEWEST_STEPS, Trials
from rung.recovery.decide.decide import Climb, Relaunch
from rung.recovery.decide.diagnose import blew_up_before, diagnose
from rung.recovery.monitors.fault_groups import BAD_NUMBERS
from rung.recovery.monitors.learning import SAME_LEVEL
from rung.recovery.trials.candidates import candidates

# Faults of the numbers: what cures them shows in the loss. A dtype error or a lack of memory needs no trial.
TRIED = BAD_NUMBERS | {FaultKind.SCALE_COLLAPSE}
# A run is judged over 300 steps beyond its fault (learning.MIN_WINDOW); a longer trial shows little more.
LONGEST_STEPS = 300
FEWEST_CANDIDATES = 2
# Trials of a fault in the first steps begin from scratch. It costs little, and a checkpoint before the fault may hold
# its cause: the state of Adam after an enormous gradient kept the loss of a small GPT three times as high.
FIRST_STEPS = 200


@dataclass(frozen=True)
class NoTrials:
    """Why a rung is taken without trials; empty where nobody would expect any."""

    why: str = ""


def plan_trials(job: Job, climb: Climb, decision: Relaunch, attempts: Sequence[Attempt]) -> Trial | NoTrials:
    """Return the first of the trials for a fault, in place of the rung that the rules would take."""
    asked, last = job.spec.recovery.trials, climb.context.attempts[-1]
    if asked is None or decision.rung is None or climb.root.kind not in TRIED:
        return NoTrials()
    diagnosis = diagnose(climb.context)
    if diagnosis.proven or diagnosis.verdict:
        return NoTrials("the cause is proven, so no trials" if diagnosis.proven else "")
    why = _why_not(job, last)
    if why:
        return NoTrials(why)
    found = candidates(job, climb, asked.candidates, attempts)
    fault_step = _fault_step(climb, last)
    start = decision.checkpoint.step if decision.checkpoint and fault_step > FIRST_STEPS else 0
    planned = _within_cost(asked, found, (start, fault_step), last)
    return replace(planned, goal=_goal(climb)) if isinstance(planned, Trial) else planned


def _fault_step(climb: Climb, last: Attempt) -> int:
    """Return the step that trials must go beyond: where the numbers went wrong, also if the fault was seen later."""
    fault = last.fault
    if fault is not None and fault.began is not None and blew_up_before(fault):
        return fault.began
    return climb.incident.furthest_fault_step or last.fault_step


def _goal(climb: Climb) -> float | None:
    """Return the loss that shows a cure: the level before the fault, or else one below that of the untrained model."""
    first, healthy = climb.context.attempts[0].first_loss, climb.context.attempts[-1].healthy_loss
    if healthy is not None:
        return healthy + SAME_LEVEL * abs(healthy)
    return first - SAME_LEVEL * abs(first) if first is not None else None


def _why_not(job: Job, last: Attempt) -> str:
    printed = last.first_loss is not None or (last.fault is not None and last.fault.kind is FaultKind.NAN_LOSS)
    if not printed or last.furthest_step is None:
        return "no trials: no loss or no step was seen, so that they could not be compared"
    shared = shared_folder(job.spec)
    return f"no trials: {shared}" if shared else ""


def shared_folder(spec: JobSpec) -> str:
    """Return why a job never has trials, whatever its fault: they would all write into one folder; empty: it may."""
    folder = PurePosixPath(spec.checkpoint.dir)
    if not folder.is_absolute() and ".." not in folder.parts:
        return ""
    kind = "an absolute path" if folder.is_absolute() else "outside of the job's folder"
    return f"checkpoint.dir is {kind}, so that a trial has no folder of its own; give a relative one, without `..`"


def _within_cost(asked: Trials, found: list[Candidate], span: tuple[int, int], last: Attempt) -> Trial | NoTrials:
    """Return the trials of as many candidates as the cost allows, over as many steps."""
    start, fault_step = span
    to_fault = max(0, fault_step - start)
    bound = _most_steps(asked, last)
    needed = to_fault + (asked.steps or FEWEST_STEPS)
    # One of them wins and loses nothing.
    count = min(len(found), 1 + bound // needed)
    if len(found) < FEWEST_CANDIDATES:
        return NoTrials("no trials: it is the only rung that can be tried")
    if count < FEWEST_CANDIDATES:
        return NoTrials(f"no trials: each would take {needed} steps, and they may take {bound} together")
    steps = asked.steps or max(FEWEST_STEPS, min(LONGEST_STEPS, bound // count - to_fault))
    return Trial(last.number, 0, tuple(found[:count]), start, fault_step, fault_step + steps, bound)


def _most_steps(asked: Trials, last: Attempt) -> int:
    """Return how many steps the trials that do not win may take: a share of those left if known, else of those made."""
    made = last.furthest_step or 0
    counted = made if last.total_steps is None else max(0, last.total_steps - made)
    return int(max(asked.cost * counted, asked.candidates * FEWEST_STEPS))
