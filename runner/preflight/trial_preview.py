"""Shows which trials each fault of the numbers would bring, with the code that plans them."""

from __future__ import annotations

from collections.abc import Iterator

from rung.jobs.job import Attempt, Job
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Precision
from rung.recovery.decide.decide import climb_of
from rung.recovery.trials.candidates import candidates
from rung.recovery.trials.plan import TRIED, shared_folder

# A fault in the course of a run that had no lr or precision of its own in the job file.
STEP = 1000
SCRIPT_VALUES = {"lr": 1.0, "precision": Precision.AMP_FP16.value}


def trial_candidates(job: Job) -> dict[str, list[str]]:
    """Return the candidates for each fault that trials decide about, the most likely first; empty without trials."""
    asked = job.spec.recovery.trials
    if asked is None or shared_folder(job.spec):
        return {}
    kinds = [kind for kind in FaultKind if kind in TRIED]
    return {kind.value: _labels(job, kind, asked.candidates) for kind in kinds}


def _labels(job: Job, kind: FaultKind, most: int) -> list[str]:
    fault = Fault(kind, "", step=STEP)
    inside = SCRIPT_VALUES if job.spec.knobs.mode == "zero-edit" else {}
    attempt = Attempt(job.id, 1, "", job.knobs, None, "", fault=fault, furthest_step=STEP, effective=inside)
    return [each.label for each in candidates(job, climb_of(job, [attempt], None), most)]


def trial_lines(job: Job) -> Iterator[str]:
    """Yield what the dry run says about trials."""
    found = trial_candidates(job)
    if not found:
        yield f"trial none ({shared_folder(job.spec) if job.spec.recovery.trials else 'recovery.trials: off'})"
    for kind, labels in found.items():
        yield f"trial {kind}: {', '.join(labels) if labels else 'no rung to try'}"
