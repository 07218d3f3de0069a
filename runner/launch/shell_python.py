"""Finds the Python of the shell that submits a job, and gives it to the job, whichever controller starts it.

Only for jobs on this machine: one with an image has the Python of its image.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rung.jobs.model.errors import UsageError
from rung.jobs.spec.job_spec import JobSpec

PYTHON = re.compile(r"python[\d.]*")
FIND_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
FIND_SECONDS = 60.0
# If no environment is active, this was the `python` of jobs whose Python nobody recorded.
OWN_BIN = str(Path(sys.prefix) / "bin") if sys.prefix != sys.base_prefix else None


def find_python(environ: Mapping[str, str]) -> str:
    """Return the path of the first Python on PATH, as the shell finds it; "" if there is none.

    Links are kept: the Python of an environment is a link, and is another one without it.
    """
    path = environ.get("PATH", os.defpath)
    found = shutil.which("python", path=path) or shutil.which("python3", path=path)
    return str(Path(found).absolute()) if found else ""


def with_python(environ: Mapping[str, str], python: str | None) -> dict[str, str]:
    """Return the variables with this Python and the programs beside it first on PATH; "": as they are.

    None: nobody recorded one, as for jobs of earlier versions. They get the Python of an active environment, or Rung's.
    """
    env, path = dict(environ), environ.get("PATH", os.defpath)
    if python is None:
        active = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
        return env if active or not OWN_BIN else {**env, "PATH": f"{OWN_BIN}:{path}"}
    if not python:
        return env
    folder = str(Path(python).parent)
    # The variable of another shell, and of another Python.
    if f"{environ.get('VIRTUAL_ENV')}/bin" != folder:
        env.pop("VIRTUAL_ENV", None)
    return env if path.split(":")[0] == folder else {**env, "PATH": f"{folder}:{path}"}


def python_with_torch(environ: Mapping[str, str]) -> str | None:
    """Return the Python of this shell if it has torch, else the one that Rung runs in if that has; None: neither."""
    beside = str(Path(sys.executable).parent)
    found = (shutil.which("python", path=path) for path in (environ.get("PATH", os.defpath), beside))
    return next((str(Path(python).absolute()) for python in found if python and _has_torch(python, environ)), None)


def _has_torch(python: str, environ: Mapping[str, str]) -> bool:
    try:
        done = subprocess.run(
            [python, "-c", FIND_TORCH], env=dict(environ), capture_output=True, timeout=FIND_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def recorded_python(spec: JobSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what is recorded about the Python of a job that this shell submits; refuse a job whose Python it lacks."""
    if spec.is_remote:
        return {}
    first, path = spec.run[0], environ.get("PATH", os.defpath)
    if PYTHON.fullmatch(first) and "PATH" not in spec.envs and shutil.which(first, path=path) is None:
        other = find_python(environ)
        there = f" ({other} is)" if other else ""
        raise UsageError(
            f"{spec.name}: run: {first} is not on the PATH of this shell{there}: activate the environment of the job, "
            "or write the path of its Python in `run`"
        )
    return {"python": find_python(environ)}
