"""Runs the command line in the process of the tests, and makes job files and stored jobs for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.runner.cli.main import main


@pytest.fixture
def run_rung(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Return a function that runs the command line in this process: exit code, output, errors."""

    def run(*args: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rung", *map(str, args)])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


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
