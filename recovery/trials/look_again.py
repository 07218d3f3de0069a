"""Looks again at the lr of a run that trials have cured: when its loss is level, a lower one is tried.

A short trial prefers too high an lr: over its first hundred steps it is ahead, and at the end of the run it is behind.
A run whose loss is level has nothing to lose by a lower one, which is compared with it at equal steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs, RungName
from rung.jobs.model.trial import Candidate, Trial
from rung.jobs.spec.trials_spec import FEWEST_STEPS
from rung.recovery.decide.checkpoint_choice import Sighting, choose_checkpoint
from rung.recovery.decide.decide import Relaunch, Wait, with_place
from rung.recovery.decide.incident import incident_after
from rung.recovery.decide.rungs import RungContext, apply_rung, with_defaults
from rung.recovery.decide.script_values import read_script_values
from rung.recovery.monitors.learning import LossHistory, was_falling
from rung.recovery.trials.compare import Readings
from rung.recovery.trials.decide_trials import first_trial
from rung.recovery.trials.plan import LONGEST_STEPS, TRIED

# The first look comes twice the length of a trial after the start; each next one half as far again. Ten times the right
# lr was seen from 200 steps on, in each of four models with SGD, momentum and Adam.
FIRST_LOOK, NEXT_LOOK = 2 * FEWEST_STEPS, 1.5
# After a look the next one comes at three times the step: it costs two launches where the lr is right.
AFTER_A_LOOK = 3
# A trial of a sparse log is longer: with five readings in its last half, half of the lower learning rates that end
# better were seen, with ten three quarters.
FEWEST_READINGS = 20


def level_steps(job: Job, attempts: Sequence[Attempt], history: LossHistory, gpu: Gpu | None) -> list[int]:
    """Return the steps at which the loss of a cured run was seen to be level; none if its lr is not in doubt."""
    line, last = main_line(attempts), history.last_step
    if last is None or not _is_in_doubt(job, attempts) or lower_knobs(job, line, gpu) is None:
        return []
    begun = line[-1].resume_point
    after = AFTER_A_LOOK * max((each.level_at for each in line if each.level_at is not None), default=0)
    due = (step for step in _look_steps(begun, last) if step >= after)
    return [step for step in due if was_falling(history, step, since=begun) is False]


def _look_steps(begun: int, last: int) -> Iterator[int]:
    distance = float(FIRST_LOOK)
    while begun + distance <= last:
        yield begun + int(distance)
        distance *= NEXT_LOOK


def _is_in_doubt(job: Job, attempts: Sequence[Attempt]) -> bool:
    """Return whether the lr of a run is in doubt: trials lowered it, or its fault came before it had learned."""
    line = main_line(attempts)
    root = incident_after(line[:-1], job.knobs)
    if job.spec.recovery.trials is None or root.root_fault is None or root.root_fault.kind not in TRIED:
        return False
    if line[-1].left_alone or not any(each.trial for each in attempts):
        return False
    faulty = next(each for each in line if each.number == root.root_attempt)
    return faulty.healthy_loss is None or line[-1].asked.lr != faulty.asked.lr


def lower_knobs(job: Job, line: Sequence[Attempt], gpu: Gpu | None) -> Knobs | None:
    """Return the knobs of a run with a tenth of its lr; None where that is too low, or cannot reach the script."""
    step = next((each for each in job.spec.recovery.rungs if each.rung is RungName.LOWER_LR), None)
    script_values = read_script_values(line)
    context = RungContext(job.spec, line[-1].asked, job.knobs, script_values, gpu=gpu, attempts=tuple(line))
    if step is None or step.values:
        return None
    knobs = apply_rung(step, context)
    return knobs if isinstance(knobs, Knobs) else None


def latest_start(level_at: int, readings: Readings) -> int:
    """Return the step that a checkpoint must be older than to try a lower lr over enough readings before `level_at`."""
    before = [step for step, _ in readings if step <= level_at]
    enough = before[-FEWEST_READINGS] if len(before) >= FEWEST_READINGS else 0
    return min(level_at - FEWEST_STEPS, enough) + 1


def has_saved(last: Attempt) -> bool:
    """Return whether a run whose loss is level has reported a checkpoint to try a lower lr from."""
    level_at = last.level_at or 0
    before, after = latest_start(level_at, last.readings), max(last.resume_point, level_at - LONGEST_STEPS)
    return any(after <= step < before for step in last.saved.values())


def look_again(
    job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Sighting], gpu: Gpu | None
) -> Relaunch | None:
    """Return the trial of a lower lr, over the steps before its loss was level; None: there is nowhere to begin."""
    line, asked = main_line(attempts), job.spec.recovery.trials
    level_at = line[-1].level_at or 0
    knobs = lower_knobs(job, line, gpu)
    found = choose_checkpoint(checkpoints, line, latest_start(level_at, line[-1].readings)).checkpoint
    if found is None or knobs is None or asked is None or found.step < line[-1].resume_point:
        return None
    bound = int(max(asked.cost * level_at, LONGEST_STEPS))
    if level_at - found.step > bound:
        return None
    now = with_defaults(line[-1].asked, read_script_values(line)).lr
    share = float(f"{knobs.lr / now:.4g}") if knobs.lr and now else None
    candidate = Candidate(RungName.LOWER_LR.value, knobs, share)
    planned = Trial(line[-1].number, 0, (candidate,), found.step, found.step, level_at, bound)
    return first_trial(attempts, planned, found)


def decide_look_again(
    job: Job,
    attempts: Sequence[Attempt],
    checkpoints: Sequence[Sighting],
    gpu: Gpu | None,
    other_hosts: Sequence[str] = (),
) -> Relaunch | Wait | None:
    """Return the next launch of a run that was stopped because its loss is level; None for any other job."""
    last = attempts[-1]
    if last.level_at is None or last.fault is not None:
        return None
    decision = look_again(job, attempts, checkpoints, gpu)
    if decision is None:
        choice = choose_checkpoint(checkpoints, main_line(attempts), None)
        because = f"no checkpoint is there to try a lower lr from: the run goes on; {choice.because}"
        decision = Relaunch(None, last.asked, choice.checkpoint, because)
    return with_place(decision, job, attempts, checkpoints, other_hosts)
