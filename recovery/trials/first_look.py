"""Looks early at a run without a fault whose loss is level and still high: lower learning rates are tried from scratch.

The losses of the run itself are known, so that each trial is compared with it at equal steps. If none is better, the
run goes on as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs, RungName
from rung.jobs.model.trial import Candidate, Trial
from rung.jobs.spec.recovery_spec import RungSpec
from rung.recovery.decide.decide import Relaunch
from rung.recovery.decide.incident import incident_after
from rung.recovery.decide.rungs import LR_FACTOR, RungContext, apply_rung
from rung.recovery.decide.script_values import read_script_values
from rung.recovery.monitors.learning import SAME_LEVEL, LossHistory
from rung.recovery.monitors.level_loss import has_spikes, is_level_and_high, look_steps
from rung.recovery.trials.candidates import lower_lr
from rung.recovery.trials.decide_trials import first_trial
from rung.recovery.trials.plan import shared_folder

# Later, trials from scratch would take too long, and a healthy run may have come to its level.
LATEST_STEP = 450
# As many trials as long as this may run that do not win: of a lower lr twice, and of a clip or of a still lower lr.
MOST_TRIALS = 3


def doubtful_steps(job: Job, attempts: Sequence[Attempt], history: LossHistory, gpu: Gpu | None) -> list[int]:
    """Return the steps at which a run without a fault was level and high; none if it is not to be looked at."""
    line = main_line(attempts)
    asked = job.spec.recovery
    if asked.trials is None or asked.not_learning != "act" or shared_folder(job.spec):
        return []
    if not is_first_run(job, line) or candidate_with_lower_lr(job, line, gpu) is None:
        return []
    due = (step for step in look_steps(0, min(history.last_step or 0, LATEST_STEP)))
    return [step for step in due if is_level_and_high(history, step, untrained_loss(line[0]))]


def is_first_run(job: Job, line: Sequence[Attempt]) -> bool:
    """Return whether a job's run began from scratch, and neither a fault nor a look has changed anything yet."""
    last = line[-1]
    looked_at = any(each.level_at is not None for each in line[:-1])
    unchanged = last.rung is None and last.asked == line[0].asked and not last.left_alone
    return last.resume_point == 0 and unchanged and not looked_at and incident_after(line, job.knobs).root_fault is None


def untrained_loss(first: Attempt) -> float | None:
    """Return the loss of the untrained model: that of the first update, never of a line after a blow-up."""
    seen_at_once = first.first_step is not None and first.first_step <= 1
    return first.first_loss if seen_at_once or first.healthy_loss is not None else None


def candidate_with_lower_lr(
    job: Job, line: Sequence[Attempt], gpu: Gpu | None, factor: float = LR_FACTOR
) -> Candidate | None:
    """Return a candidate with a share of the run's lr; None where that is too low, or cannot reach the script."""
    step, context = _rung(job, RungName.LOWER_LR), _context(job, line, gpu)
    if step is None or step.values:
        return None
    knobs = apply_rung(step.model_copy(update={"values": (factor,)}), context)
    now = context.now.lr
    if not isinstance(knobs, Knobs) or not knobs.lr or not now:
        return None
    return Candidate(RungName.LOWER_LR.value, knobs, float(f"{knobs.lr / now:.4g}"))


def _with_clip(job: Job, line: Sequence[Attempt], gpu: Gpu | None) -> tuple[Candidate, ...]:
    """Return a clipped candidate for a run with spikes; none where that cannot reach the script."""
    step, last = _rung(job, RungName.RAISE_CLIP), line[-1]
    if step is None or not has_spikes(last.readings, last.level_at or 0):
        return ()
    knobs = apply_rung(step, _context(job, line, gpu))
    return (Candidate(RungName.RAISE_CLIP.value, knobs),) if isinstance(knobs, Knobs) else ()


def _rung(job: Job, name: RungName) -> RungSpec | None:
    return next((each for each in job.spec.recovery.rungs if each.rung is name), None)


def _context(job: Job, line: Sequence[Attempt], gpu: Gpu | None) -> RungContext:
    return RungContext(job.spec, line[-1].asked, job.knobs, read_script_values(line), gpu=gpu, attempts=tuple(line))


def first_look(job: Job, attempts: Sequence[Attempt], gpu: Gpu | None) -> Relaunch | None:
    """Return the first trial about a run that was level and high; None for any other run."""
    line = main_line(attempts)
    last = line[-1]
    if last.level_at is None or last.level_at > LATEST_STEP or not is_first_run(job, line):
        return None
    tenth = candidate_with_lower_lr(job, line, gpu)
    if tenth is None:
        return None
    hundredth = lower_lr(tenth)
    lower = (tenth,) if hundredth is None else (tenth, hundredth)
    found = (*_with_clip(job, line, gpu), *lower)
    untrained, until = untrained_loss(line[0]), last.level_at
    goal = untrained - SAME_LEVEL * abs(untrained) if untrained is not None else None
    planned = Trial(last.number, 0, found, 0, 0, until, MOST_TRIALS * until, goal=goal)
    return first_trial(attempts, planned, None)
