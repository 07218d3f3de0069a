"""Runs the measurements: `python -m tests.bench` all of them, `python -m tests.bench NAME` one."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

NAMES = (
    *(
        "speed",
        "searching",
        "reading",
        "logs",
        "series",
        "commands",
        "processes",
        "controller",
        "restart",
        "web",
        "warning",
    ),
    *("levels", "hosts", "relaunch", "inside", "gpu", "places"),
)
# These take long, or need more than `make system` installs, so they run only where they are named.
LONG = ("soak", "emulated")


def main() -> None:
    # A shell may forbid Python to keep compiled modules; then every command that is measured compiles all of them.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    wanted = [word for word in sys.argv[1:] if not word.startswith("-")]
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    present = [name for name in NAMES if (Path(__file__).parent / f"{name}.py").exists()]
    unknown = [name for name in wanted if name not in (*present, *LONG)]
    if unknown:
        sys.exit(f"rung: no measurement {unknown[0]}; there are {', '.join((*present, *LONG))}")
    for name in wanted or present:
        importlib.import_module(f"tests.bench.{name}").main(options)


main()
