"""Lists the candidates for trials after a fault: what the diagnosis names, a lower lr twice, and the other rungs.

The rules of recovery/decide name the candidates and their order; which of them is taken is decided by their losses.
"""

from __future__ import annotations

from collections.abc import Sequence

from rung.jobs.job import Attempt, Job
from rung.jobs.model.knobs import Knobs, RungName
from rung.jobs.model.trial import Candidate
from rung.jobs.spec.recovery_spec import RungSpec
from rung.recovery.decide.decide import Climb
from rung.recovery.decide.diagnose import diagnose
from rung.recovery.decide.incident import STEPS_TO_FP32
from rung.recovery.decide.rung_choice import rung_options
from rung.recovery.decide.rungs import LR_FACTOR

# Four steps to a tenth: public scripts were met whose lr was a thousand times too high, and one step more shows that
# the right one is reached.
LOWEST_LR_SHARE = 1e-4
# An lr that trials chose among tenths is too high by less than a tenth, where it fails after all: a small GPT took one
# that was three times too high during its warm-up, and a tenth of that ended 26 % worse than the right one.
AFTER_TENTHS = 0.3


def candidates(job: Job, climb: Climb, most: int, attempts: Sequence[Attempt] = ()) -> list[Candidate]:
    """Return the candidates, the most likely first: at most `most` of them."""
    found: list[Candidate] = []
    chosen = climb.context.now.lr is not None and climb.context.now.lr in lr_chosen_by_trials(attempts)
    for step, knobs in _options(job, climb):
        candidate = Candidate(step.rung.value, knobs, _lr_share(step, climb, knobs))
        both = (
            (times_lr(candidate, AFTER_TENTHS / LR_FACTOR), candidate) if chosen else (candidate, lower_lr(candidate))
        )
        found += [each for each in both if each is not None] if not step.values else [candidate]
    return found[:most]


def lr_chosen_by_trials(attempts: Sequence[Attempt]) -> set[float]:
    """Return the learning rates that have won trials."""
    won = [each.trial.candidate for each in attempts if each.trial is not None and each.trial.won]
    return {each.knobs.lr for each in won if each.rung == RungName.LOWER_LR and each.knobs.lr is not None}


def _options(job: Job, climb: Climb) -> list[tuple[RungSpec, Knobs]]:
    """Return the rungs that can be taken. Without a diagnosis, a run that has not learned yet lowers its lr first."""
    found = rung_options(job, climb.root, climb.context, climb.incident)
    if not job.spec.recovery.names_its_rungs:
        found = _with_one_step_to_fp32(found)
    if diagnose(climb.context).rungs or climb.context.attempts[-1].healthy_loss is not None:
        return found
    return sorted(found, key=lambda option: option[0].rung is not RungName.LOWER_LR)


def _with_one_step_to_fp32(options: list[tuple[RungSpec, Knobs]]) -> list[tuple[RungSpec, Knobs]]:
    """Keep the first of the steps to FP32: all of them would leave no room for a rung of another kind."""
    steps = [step.rung for step, _ in options if step.rung in (*STEPS_TO_FP32, RungName.FP32)]
    return [option for option in options if option[0].rung not in steps[1:]]


def _lr_share(step: RungSpec, climb: Climb, knobs: Knobs) -> float | None:
    now = climb.context.now.lr
    return float(f"{knobs.lr / now:.4g}") if step.rung is RungName.LOWER_LR and knobs.lr and now else None


def lower_lr(candidate: Candidate) -> Candidate | None:
    """Return a candidate with a tenth of this one's lr; None for another rung, and below the lowest share."""
    if candidate.lr_share is None or candidate.lr_share * LR_FACTOR < LOWEST_LR_SHARE * 0.999:
        return None
    return times_lr(candidate, LR_FACTOR)


def times_lr(candidate: Candidate, factor: float) -> Candidate | None:
    """Return a candidate with so many times this one's lr; None for another rung."""
    lr, share = candidate.knobs.lr, candidate.lr_share
    if lr is None or share is None:
        return None
    return Candidate(
        candidate.rung, candidate.knobs.but(lr=float(f"{lr * factor:.6g}")), float(f"{share * factor:.4g}")
    )


def is_tenth(candidate: Candidate) -> bool:
    """Return whether a share is a tenth, a hundredth and so on: a job file may ask for others, and so does a look."""
    return f"{candidate.lr_share or 0.0:e}".startswith("1.000000e")
