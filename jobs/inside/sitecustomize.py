"""Owns the door by which Rung enters a script that knows nothing of it: Python imports this file at its start.

Without RUNG_MODE=zero-edit and without RUNG_USAGE nothing of ours happens. In any case the sitecustomize that this one
hides is run, if there is one.
"""

from __future__ import annotations

import os
import sys


def _start() -> None:
    if os.environ.get("RUNG_USAGE"):
        _measure()
    if os.environ.get("RUNG_MODE") != "zero-edit":
        return
    try:
        from rung_inside import zero_edit

        zero_edit.start()
    except Exception as error:
        sys.stdout.write(f"rung| note zero-edit could not start: {type(error).__name__}: {error}\n")


def _measure() -> None:
    """Have the run's time and memory measured; a run that cannot be measured is as good as any other."""
    try:
        from rung_inside import usage

        usage.start()
    except Exception as error:
        sys.stdout.write(f"rung| note usage cannot be measured: {type(error).__name__}: {error}\n")


def _run_hidden() -> None:
    """Import the next sitecustomize on the path under its own name; what it raises is raised as without us."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    path = [folder for folder in sys.path if os.path.abspath(folder) != here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


_start()
_run_hidden()
