"""Starts zero-edit and the measuring of usage: Python imports this file when it starts.

Without RUNG_MODE=zero-edit and RUNG_USAGE it does nothing. It always runs the sitecustomize that it hides, if there is
one.
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
    """Measure time and memory; a run that cannot be measured goes on."""
    try:
        from rung_inside import usage

        usage.start()
    except Exception as error:
        sys.stdout.write(f"rung| note usage cannot be measured: {type(error).__name__}: {error}\n")


def _run_hidden() -> None:
    """Import the next sitecustomize on the path; what it raises goes to Python as usual."""
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
