"""Lets TensorBoard forget what a relaunch writes again, and reports which run of MLflow the script writes to."""

from __future__ import annotations

import os
import sys
from typing import Any

from rung_inside.contract import records
from rung_inside.patching import patch

# The place of purge_step among the arguments of SummaryWriter: log_dir, comment, purge_step.
PURGE_STEP = 2


def install_summary_writer(writer: Any) -> None:
    # With `watch: inside` nothing in the script is changed.
    if os.environ.get("RUNG_MODE") == "zero-edit" and os.environ.get("RUNG_PURGE_STEP", "").isdigit():
        patch.wrap(writer.SummaryWriter, "__init__", _purging)


def _purging(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Give a writer the step that the run resumes at, unless the script has given one."""
    if len(args) <= PURGE_STEP and kwargs.get("purge_step") is None:
        kwargs["purge_step"] = int(os.environ["RUNG_PURGE_STEP"])
    return original(self, *args, **kwargs)


def install_mlflow(mlflow: Any) -> None:
    patch.wrap(mlflow, "start_run", _starting)


def _starting(original: Any, *args: Any, **kwargs: Any) -> Any:
    run = original(*args, **kwargs)
    patch.quietly(_report_run, run)
    return run


def _report_run(run: Any) -> None:
    """Write the link to a run that a server keeps. MLflow itself shows it only at the end of the run."""
    server = str(sys.modules["mlflow"].get_tracking_uri()).rstrip("/")
    # An address can hold a user and a password.
    if server.startswith(("http://", "https://")) and "@" not in server:
        link = f"{server}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"
        records.emit("tracker", link=link)
