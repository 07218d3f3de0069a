"""Looks again at the lr of a run that trials have cured: when its loss is level, a lower one is tried.

A short trial prefers too high an lr: over its first hundred steps it is ahead, and at the end of the run it is behind.
A run whose loss is level has nothing to lose by a lower one, which is compared with it at equal steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.trial import Candidate, Trial
from rung.jobs.spec.trials_spec import FEWEST_STEPS
from rung.recovery.decide.checkpoint_choice import Sighting, choose_checkpoint
from rung.recovery.decide.decide import Relaunch, Wait, with_place
from rung.recovery.decide.incident import incident_after
from rung.recovery.monitors.learning import EARLY, LossHistory
from rung.recovery.monitors.level_loss import is_level, look_steps
from rung.recovery.trials.compare import Readings
from rung.recovery.trials.decide_trials import begins_anew, first_trial
from rung.recovery.trials.first_look import candidate_with_lower_lr, first_look
from rung.recovery.trials.plan import LONGEST_STEPS, TRIED

# A look tries about a third of the lr. In eight trainings of four models, half to twice the right lr ended within 5 %
# of it, five times and a fifth did not: a step to a tenth can miss that range, a step to a third cannot.
LOOK_FACTOR = 0.3
# After a look the next one comes at three times the step: it costs two launches where the lr is right.
AFTER_A_LOOK = 3
# A trial of a sparse log is longer: with five readings in its last half, half of the lower learning rates that end
# better were seen, with ten three quarters.
FEWEST_READINGS = 20


def level_steps(job: Job, attempts: Sequence[Attempt], history: LossHistory, gpu: Gpu | None) -> list[int]:
    """Return the steps at which the loss of a cured run was seen to be level; none if its lr is not in doubt."""
    last = history.last_step
    if last is None or not _is_in_doubt(job, attempts):
        return []
    line = main_line(attempts)
    if _lower_lr(job, line, gpu) is None:
        return []
    begun = line[-1].resume_point
    after = AFTER_A_LOOK * max((each.level_at for each in line if each.level_at is not None), default=0)
    due = (step for step in look_steps(begun, last) if step >= after)
    return [step for step in due if is_level(history, step, since=begun)]


def _is_in_doubt(job: Job, attempts: Sequence[Attempt]) -> bool:
    """Return whether the lr of a run is in doubt: trials lowered it, or its fault came before it had learned."""
    # Asked for every line of every run, and most runs have no trials.
    if job.spec.recovery.trials is None or not any(each.trial for each in attempts):
        return False
    line = main_line(attempts)
    root = incident_after(line[:-1], job.knobs)
    if line[-1].left_alone:
        return False
    if root.root_fault is None:
        return line[-1].asked.lr != line[0].asked.lr  # a first look lowered it
    faulty = next(each for each in line if each.number == root.root_attempt)
    if root.root_fault.kind not in TRIED or (faulty.healthy_loss is not None and faulty.fault_step > EARLY):
        return False  # an lr that a long healthy stretch has shown to be right is not in doubt
    return faulty.healthy_loss is None or line[-1].asked.lr != faulty.asked.lr


def _lower_lr(job: Job, line: Sequence[Attempt], gpu: Gpu | None) -> Candidate | None:
    return candidate_with_lower_lr(job, line, gpu, LOOK_FACTOR)


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
    first = first_look(job, attempts, gpu)
    if first is not None:
        return first
    line, asked = main_line(attempts), job.spec.recovery.trials
    level_at = line[-1].level_at or 0
    candidate = _lower_lr(job, line, gpu)
    found = choose_checkpoint(checkpoints, line, latest_start(level_at, line[-1].readings)).checkpoint
    if found is None or candidate is None or asked is None or found.step < line[-1].resume_point:
        return None
    bound = int(max(asked.cost * level_at, LONGEST_STEPS))
    if level_at - found.step > bound:
        return None
    planned = Trial(line[-1].number, 0, (candidate,), found.step, found.step, level_at, bound)
    decision = first_trial(attempts, planned, found)
    assert decision.trial is not None
    may_go_on = decision.trial.may_go_on and not begins_anew(line[-1], planned, attempts)
    return replace(decision, trial=replace(decision.trial, may_go_on=may_go_on))


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
