"""Keeps the curves of a relaunch whole: TensorBoard forgets what is written again, and MLflow gets each step once.

Also reports which run of MLflow the script writes to, so that the next attempt can go on with it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from rung_inside.contract import records
from rung_inside.patching import patch

PURGE_STEP = "RUNG_PURGE_STEP"
RUN_ID = "MLFLOW_RUN_ID"
# Set on a writer of TensorBoard that has forgotten what it writes again.
PURGED = "_rung_purged"

# The run of MLflow that goes on: the last step of each of its metrics, before this attempt.
_stored: dict[str, dict[str, int]] = {}


def _purge_step() -> int | None:
    """Return the step that the run begins again at; None if it is a first attempt, or is only watched."""
    text = os.environ.get(PURGE_STEP, "")
    return int(text) if os.environ.get("RUNG_MODE") == "zero-edit" and text.isdigit() else None


def install_file_writer(writer: Any) -> None:
    if _purge_step() is not None:
        patch.wrap(writer.FileWriter, "add_event", _adding)


def _adding(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    if not getattr(self, PURGED, False):
        patch.quietly(_purge, original, self, *args, **kwargs)
    return original(self, *args, **kwargs)


def _purge(add: Any, writer: Any, event: Any, step: Any = None, walltime: Any = None) -> None:
    """Write, before the first value that is written again, that older values from there on do not count.

    A script that counts from 0 makes the step of its checkpoint after the resume, one that counts from 1 has made it.
    So only the first value shows from which step on it writes again. What comes before, such as the options as text at
    step 0, must stay.
    """
    begins = _purge_step()
    reached = int(event.step if step is None else step)
    if event.HasField("session_log"):
        # The script has given its own purge_step.
        setattr(writer, PURGED, True)
    elif begins is not None and event.HasField("summary") and reached >= begins:
        setattr(writer, PURGED, True)
        mark = type(event)()
        mark.session_log.status = mark.session_log.START
        add(writer, mark, begins if reached == begins else begins + 1)


def install_mlflow(mlflow: Any) -> None:
    # The functions that log begin a run by the second one, where the script has begun none.
    patch.wrap(mlflow, "start_run", _starting)
    patch.wrap(sys.modules.get("mlflow.tracking.fluent"), "start_run", _starting)
    if _purge_step() is not None and os.environ.get(RUN_ID):
        patch.wrap(mlflow.MlflowClient, "log_metric", _logging_metric)
        patch.wrap(mlflow.MlflowClient, "log_batch", _logging_batch)


def _starting(original: Any, *args: Any, **kwargs: Any) -> Any:
    if not args and kwargs.get("run_id") is None:
        patch.quietly(_find_stored)
    run = original(*args, **kwargs)
    patch.quietly(_report_run, run)
    return run


def _find_stored() -> None:
    """Look up the run to go on with. One that is not in this store would end the script, so a new one begins then."""
    run_id = os.environ.get(RUN_ID)
    if not run_id:
        return
    try:
        run = sys.modules["mlflow"].MlflowClient().get_run(run_id)
    except sys.modules["mlflow"].MlflowException as error:
        if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
            del os.environ[RUN_ID]
        return
    if run.info.lifecycle_stage == "deleted":
        del os.environ[RUN_ID]
    else:
        _stored[run_id] = {metric.key: metric.step for metric in run.data._metric_objs}


def _is_stored(run_id: Any, key: Any, step: Any) -> bool:
    """Tell whether a metric has its value at a step, or later ones, from the attempt before: MLflow forgets none.

    A metric without steps has all its values at step 0.
    """
    begins, last = _purge_step(), _stored.get(run_id, {}).get(key, 0)
    return begins is not None and last > 0 and begins <= int(step or 0) <= last


def _logging_metric(original: Any, self: Any, run_id: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    step = args[1] if len(args) > 1 else kwargs.get("step")
    if patch.quietly(_is_stored, run_id, key, step):
        return None
    return original(self, run_id, key, value, *args, **kwargs)


def _logging_batch(original: Any, self: Any, run_id: Any, metrics: Any = (), *args: Any, **kwargs: Any) -> Any:
    kept = [each for each in metrics if not patch.quietly(_is_stored, run_id, each.key, each.step)]
    return original(self, run_id, kept, *args, **kwargs)


def _report_run(run: Any) -> None:
    """Write the link to a run. MLflow itself shows it only at the end of the run, and none where there is no server."""
    server = str(sys.modules["mlflow"].get_tracking_uri()).rstrip("/")
    link = f"runs:/{run.info.run_id}"
    # An address can hold a user and a password.
    if server.startswith(("http://", "https://")) and "@" not in server:
        link = f"{server}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"
    records.emit("tracker", link=link)
