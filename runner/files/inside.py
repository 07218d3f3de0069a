"""Knows where the code that runs inside a job is on this machine."""

from __future__ import annotations

from pathlib import Path

from rung.runner.files.tree import Tree, scan

INSIDE = Path(__file__).resolve().parents[2] / "jobs" / "inside"
WRAPPER = INSIDE / "rung_inside" / "wrapper.py"


def scan_inside(folder: Path) -> Tree:
    """Return the code that runs in the container, without Python's caches."""
    return scan(folder, lambda path, is_folder: path.rpartition("/")[2] == "__pycache__")
