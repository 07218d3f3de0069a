"""Makes a job file for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    spec = {
        "name": "a",
        "run": "python train.py --lr {lr} --clip={clip} --resume {checkpoint}",
        "knobs": {"lr": 1e-3, "clip": False},
        "envs": {"MODE": "it's {precision}"},
        "resources": {"cpus": 2},
        "secrets": ["TOKEN"],
    }
    file.write_text(yaml.safe_dump(spec), encoding="utf-8")
    return file
