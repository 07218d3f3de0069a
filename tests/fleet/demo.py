"""Runs the demo on a fleet: the job with three faults is sent over SSH into a container, as with real GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from tests.fleet.fleet import Fleet

SHIPPED = Path(__file__).resolve().parents[2] / "jobs" / "catalog" / "three-faults"
RUNG = Path(sys.executable).parent / "rung"


def show(fleet: Fleet) -> int:
    """Run the job on the fleet, show its output, and return its exit code."""
    folder = fleet.folder / "demo"
    shutil.rmtree(folder / SHIPPED.name, ignore_errors=True)
    shutil.copytree(SHIPPED, folder / SHIPPED.name)
    file = folder / SHIPPED.name / "job.yaml"
    spec = yaml.safe_load(file.read_text(encoding="utf-8"))
    spec |= {"image": fleet.images["train"], "resources": {"gpu": ["A100:1", "TITANRTX:1"]}}
    file.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    env = {**os.environ, "RUNG_HOME": str(folder / "home"), "RUNG_HOSTS": str(fleet.inventory)}
    for words in (["hosts"], ["launch", "-f", str(file)], ["history", "--diff", SHIPPED.name]):
        done = subprocess.run([RUNG, *words], env=env, check=False)
        if done.returncode:
            return done.returncode
    settings = f"export RUNG_HOME={env['RUNG_HOME']} RUNG_HOSTS={env['RUNG_HOSTS']}"
    away = f"make fleet-down NUMBER={fleet.number}"
    sys.stdout.write(f"\nThe fleet is still up. To use it: {settings}\nTo remove it: {away}\n")
    return 0
