"""Tests that `rung prune` removes what lies in RUNG_HOME itself: old reports, and copies of a killed `--from`."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from rung.jobs.spec.load import load_spec
from rung.recovery.validation.verdict import Verdict
from rung.runner.session.session import Session
from rung.runner.session.validate_run import find_subject, request_validation
from tests.support.ended_jobs import DAY, Shelf

RunRung = Callable[..., tuple[int, str, str]]
REPORT, START = "validation reports", "copies of a `--from` that was killed"
JOB = {"name": "ocr", "run": "python train.py --precision {precision}", "success": {"metric": "hmean", "above": 0.5}}


@pytest.fixture
def shelf(home: Path) -> Iterator[Shelf]:
    made = Shelf(home)
    yield made
    made.store.close()


def folder(shelf: Shelf, name: str, days: float = 40) -> Path:
    """Write a folder that nobody has changed for some days."""
    made = shelf.home / name
    (made / "inner").mkdir(parents=True)
    (made / "report.json").write_text("{}" * 3000)
    (made / "inner" / "step_20.pt").write_text("x" * 9000)
    at = time.time() - days * DAY
    os.utime(made, (at, at))
    return made


def du(*paths: Path) -> int:
    done = subprocess.run(["du", "-skc", "--", *paths], capture_output=True, text=True, check=True)
    return int(done.stdout.splitlines()[-1].split()[0]) << 10


def test_old_reports_and_copies_go_with_the_size_of_du(shelf: Shelf, run_rung: RunRung) -> None:
    goes = [folder(shelf, name) for name in ("validations/v1", "validations/v2", ".from-abc")]
    stays = [folder(shelf, name, days=29) for name in ("validations/v3", ".from-def")]
    expected = du(*goes)
    code, out, err = run_rung("prune", "--dry-run")
    assert (code, err) == (0, "") and all(path.exists() for path in goes)
    assert f"2 {REPORT}" in out and f"1 {START}" in out
    assert f"in all {expected / 1024:.1f} KiB, as `du` counts it" in out
    code, out, err = run_rung("prune", "--yes", "--json")
    data = json.loads(out)
    assert (code, err, data["bytes"], data["failed"]) == (0, "", expected, [])
    assert {each["what"]: each["paths"] for each in data["removed"]} == {
        REPORT: ["validations/v1", "validations/v2"],
        START: [".from-abc"],
    }
    assert not any(path.exists() for path in goes) and all(path.exists() for path in stays)


def test_links_are_neither_followed_nor_removed(shelf: Shelf, run_rung: RunRung, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "v1").mkdir(parents=True)
    (shelf.home / ".from-abc").symlink_to(elsewhere)
    (shelf.home / "validations").mkdir()
    (shelf.home / "validations" / "v1").symlink_to(elsewhere / "v1")
    assert json.loads(run_rung("prune", "--older", "0s", "--yes", "--json")[1])["planned"] == []
    assert (elsewhere / "v1").is_dir() and (shelf.home / ".from-abc").is_symlink()


def test_the_report_of_a_validation_without_a_verdict_stays_and_a_removed_one_is_said(
    shelf: Shelf, run_rung: RunRung, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNG_HOME", str(shelf.home))
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(JOB))
    session = Session.open(create=True)
    asked = request_validation(session, find_subject(session, str(file)), None, again=False)
    assert load_spec(file) == asked.spec
    report = folder(shelf, f"validations/{asked.id}")
    assert json.loads(run_rung("prune", "--yes", "--json")[1])["planned"] == []
    with shelf.store.transaction():
        shelf.store.put_validation(asked.number, asked.but(verdict=Verdict.PASS).to_dict(), active=False)
    assert run_rung("prune", "--yes")[0] == 0 and not report.exists()
    code, out, _ = run_rung("validate", file)
    assert code == 0 and "report: its report was removed by `rung prune`; --again runs it anew" in out
    assert json.loads(run_rung("validate", file, "--json")[1])["report"] is None
    code, _, err = run_rung("validate", file, "--output", tmp_path / "copy")
    assert code == 2 and err.count("\n") == 1 and "--again runs it anew" in err
    assert not (tmp_path / "copy").exists()
