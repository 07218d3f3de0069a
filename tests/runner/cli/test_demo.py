"""Tests `rung demo` with quick jobs in place of those that ship: its order, its end, and what it says of itself.

tests/test_wheel.py runs the real ones, as installed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rung.runner.cli.drill import DEMO_JOBS
from rung.runner.session import drill


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, _ in DEMO_JOBS:
        (tmp_path / "catalog" / name).mkdir(parents=True)
        job = f"name: {name}\nrun: sh -c 'head -c 3000000 /dev/zero > {{checkpoint_dir}}/big; echo step 1 loss 1'\n"
        (tmp_path / "catalog" / name / "job.yaml").write_text(job, encoding="utf-8")
    monkeypatch.setattr(drill, "CATALOG", tmp_path / "catalog")
    return tmp_path / "catalog"


def test_both_jobs_are_told_and_the_demo_says_how_long_it_took_and_what_it_wrote(
    catalog: Path, run_rung: Any, home: Path
) -> None:
    code, out, err = run_rung("demo")
    assert (code, err) == (0, "")
    told = [out.index(text) for text in ("submitted three-faults-1", "The next one shows no error", "small-gpt-2\n")]
    assert told == sorted(told) and out.count("SUCCEEDED") == 2
    *_, took, look = out.splitlines()
    assert re.fullmatch(rf"The demo took 0 min \d+ s and wrote 6 MiB to {re.escape(str(home))}\.", took)
    assert look == "Look next: rung history three-faults, rung logs small-gpt, rung init your-script.py"


def test_a_job_that_fails_ends_the_demo_with_its_exit_code(catalog: Path, run_rung: Any, home: Path) -> None:
    (catalog / "three-faults" / "job.yaml").write_text("name: three-faults\nrun: 'false'\n", encoding="utf-8")
    code, out, _ = run_rung("demo")
    assert code == 1 and "FAILED" in out and "small-gpt" not in out and "The demo took" not in out
