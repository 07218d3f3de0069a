"""Runs the jobs of the catalog with a real controller, and in FP32 for comparison."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.flow.conftest import Lab

CATALOG = Path(__file__).resolve().parents[2] / "jobs" / "catalog"


class CatalogLab(Lab):
    def catalog(self, name: str, options: str = "", file: str = "job.yaml", **changes: Any) -> Path:
        """Copy a job of the catalog with fields of its job file changed and words added to `run`; return the job file.

        A mapping changes only the keys it names: `knobs={"precision": "fp32"}` leaves the other knobs as they are.
        """
        folder = self.folder / f"{name}-{len(list(self.folder.glob(f'{name}-*'))) + 1}"
        shutil.copytree(CATALOG / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
        job = folder / file
        spec = yaml.safe_load(job.read_text())
        for field, value in changes.items():
            spec[field] = {**spec.get(field, {}), **value} if isinstance(value, dict) else value
        spec["run"] = f"{spec['run']} {options}".strip()
        job.write_text(yaml.safe_dump(spec, sort_keys=False))
        return job

    def fp32_metric(self, name: str, options: str = "", **changes: Any) -> float:
        """Run a job of the catalog in FP32 from the start, check that it needs no recovery, and return its metric."""
        knobs = {**changes.pop("knobs", {}), "precision": "fp32"}
        story = self.run(self.catalog(name, options, knobs=knobs, **changes))
        log = self.log(story["job"]["id"], len(story["attempts"]))
        assert story["job"]["state"] == "SUCCEEDED", f"{story['job']['reason']}\n{log[-3000:]}"
        assert len(story["attempts"]) == 1, "FP32 was to run through at once"
        return metric(story)


def metric(story: dict[str, Any]) -> float:
    """Return the value of the metric in a job's `success` that the last attempt reported."""
    return float(story["attempts"][-1]["metrics"][story["job"]["success"]["metric"]])


@pytest.fixture
def lab(tmp_path: Path) -> CatalogLab:
    return CatalogLab(tmp_path)
