"""Turns a job of the catalog into one to run: a copy of its folder, with its job file changed for a place."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

SIZE = re.compile(r"(?<=size[= ])cpu\b")
# The references: the job in FP32, or with the fixes of the report.
VARIANTS = ("fp32", "fixed")
OWN, ZERO_EDIT = "job.yaml", "zero-edit.yaml"
# With it, the code inside a job reports the time of a step and the memory when the job ends.
MEASURED = {"RUNG_USAGE": "1"}


def prepare(
    folder: Path, to: Path, size: str, variant: str | None, fields: Mapping[str, Any], source: str = OWN
) -> Path:
    """Copy a job's folder, and return the changed job file in the copy; the job's name contains the variant."""
    target = to / (f"{folder.name}-{variant}" if variant else folder.name)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("__pycache__"))
    file = target / OWN
    spec = changed(yaml.safe_load((target / source).read_text(encoding="utf-8")), size, variant, fields)
    spec["envs"] = {**spec.get("envs", {}), **MEASURED}
    file.write_text(yaml.safe_dump({**spec, "name": target.name}, sort_keys=False), encoding="utf-8")
    return file


def changed(spec: Mapping[str, Any], size: str, variant: str | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a job file for a size, a variant and the fields of a place. Pure."""
    run, many = SIZE.subn(size, spec["run"])
    if many != 1:
        raise ValueError(f"{spec['name']}: its run should name the size once, as in --size cpu: {spec['run']}")
    found = {**spec, "run": f"{run} --fixed" if variant == "fixed" else run}
    if variant == "fp32":
        found["knobs"] = {**found.get("knobs", {}), "precision": "fp32"}
    for name, value in fields.items():
        found[name] = {**found.get(name, {}), **value} if isinstance(value, dict) else value
    return found
