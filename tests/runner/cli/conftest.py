"""Runs the command line in the process of the tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
