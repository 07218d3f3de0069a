"""Sets the variables by which W&B, MLflow and TensorBoard keep the attempts of one job together. Pure."""

from __future__ import annotations

import json

from rung.jobs.job import Attempt, Job
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.knob_channels import placeholders

# They change with every attempt.
VARIABLES = ("WANDB_RUN_GROUP", "WANDB_NAME", "WANDB_TAGS", "MLFLOW_RUN_CONTEXT", "MLFLOW_RUN_ID")
# Who sets one of these continues a run in his own way; another name or group would change that run.
OWN_WANDB_RUN = {"WANDB_RUN_ID", "WANDB_RESUME"}


def tracker_variables(job: Job, attempt: Attempt) -> dict[str, str]:
    """Return the variables for the trackers of an attempt, without those that the job file sets itself."""
    if job.spec.trackers == "off":
        return {}
    given = {*job.spec.envs, *job.spec.secrets}
    found = _mlflow(job, attempt) | _tensorboard(attempt)
    if not given & OWN_WANDB_RUN:
        found |= _wandb(job, attempt)
    return {name: value for name, value in found.items() if name not in given}


def _labels(attempt: Attempt) -> dict[str, str]:
    """Return why an attempt was launched: the fault before it, the rung, and whether it is a trial."""
    trial = attempt.trial.candidate.label if attempt.trial else None
    known = {"fault": attempt.after_fault, "rung": attempt.rung, "trial": trial}
    return {name: value for name, value in known.items() if value}


def _wandb(job: Job, attempt: Attempt) -> dict[str, str]:
    labels = _labels(attempt)
    name = f"{job.id} attempt {attempt.number}" + (f" trial {labels['trial']}" if "trial" in labels else "")
    tags = [*(labels[each] for each in ("fault", "rung") if each in labels), *(["trial"] if attempt.trial else [])]
    found = {"WANDB_RUN_GROUP": job.id, "WANDB_NAME": name}
    return {**found, "WANDB_TAGS": ",".join(tags)} if tags else found


def _mlflow(job: Job, attempt: Attempt) -> dict[str, str]:
    """Return the tags of a new run, and the run to go on with where MLflow would not refuse it."""
    tags = {"rung.job": job.id, "rung.attempt": str(attempt.number)}
    tags |= {f"rung.{name}": value for name, value in _labels(attempt).items()}
    found = {"MLFLOW_RUN_CONTEXT": json.dumps(tags)}
    if attempt.mlflow_run is not None and _has_one_command(job.spec):
        found["MLFLOW_RUN_ID"] = attempt.mlflow_run
    return found


def _has_one_command(spec: JobSpec) -> bool:
    """Tell whether the script is started the same way with a checkpoint and without one.

    Many scripts log their options as parameters, and MLflow ends a run that logs another value of a parameter.
    """
    texts = (*spec.run, *spec.envs.values())
    in_files = any("checkpoint" in keys for keys in spec.knobs.files.values())
    return spec.run_on_resume is None and not in_files and all("checkpoint" not in placeholders(text) for text in texts)


def _tensorboard(attempt: Attempt) -> dict[str, str]:
    """Return the step from which on a relaunch writes again what attempts before it have written."""
    if attempt.number == 1:
        return {}
    begins = attempt.planned_step if attempt.purge_step is None else attempt.purge_step
    return {"RUNG_PURGE_STEP": str(begins or 0)}
