"""Tests `rung logs`: which attempt, how much of it, and wrong numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.job import Attempt
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.runner.state.store import Store
from tests.support.stored_jobs import submitted

Rung = Callable[..., Any]


@pytest.fixture
def job_id(home: Path) -> str:
    """Write a job with two attempts and their logs."""
    made = submitted(home)
    store = Store(home / "rung.db")
    with store.transaction():
        for number in (1, 2):
            store.put_attempt(Attempt(made, number, "h", Knobs(), None, "why"))
            log = HomePaths(home).attempt(made, number).log
            log.parent.mkdir(parents=True)
            log.write_bytes(b"".join(b"line %d of %d\n" % (line, number) for line in range(5)) + b"1%\r99%\r100%\n")
    store.close()
    return made


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--tail", "2"], ["line 4 of 2", "100%"]),
        (["--tail", "99"], [*(f"line {line} of 2" for line in range(5)), "100%"]),
        (["--attempt", "1", "--tail", "3"], ["line 3 of 1", "line 4 of 1", "100%"]),
        (["-n", "1", "--tail", "1"], ["100%"]),
        (["--attempt", "1"], [*(f"line {line} of 1" for line in range(5)), "100%"]),
    ],
)
def test_the_tail_and_the_attempt_choose_what_is_shown(
    words: list[str], shown: list[str], job_id: str, run_rung: Any
) -> None:
    code, out, err = run_rung("logs", job_id, *words)
    assert (code, out.splitlines(), err) == (0, shown, "")


@pytest.mark.parametrize("words", [["--tail", "0"], ["--tail", "-3"], ["--tail", "all"], ["--attempt", "0"]])
def test_a_number_that_is_none_is_one_line_and_exit_code_2(words: list[str], job_id: str, run_rung: Any) -> None:
    code, out, err = run_rung("logs", job_id, *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"rung: Invalid value for {words[0]!r}" if words[0] == "--tail" else "rung: Invalid value")
    assert err.count("\n") == 1


@pytest.mark.parametrize("number", [[], ["-n", "1"], ["-n", "99"]])
def test_the_log_of_an_unknown_attempt_is_an_error(number: list[str], run_rung: Any, home: Path) -> None:
    job_id = submitted(home)
    code, out, err = run_rung("logs", job_id, *number)
    assert (code, out) == (2, "")
    assert err.startswith(f"rung: job {job_id} has 0 attempts; there is no attempt")


def test_a_log_is_shown_without_control_codes_attempt_by_attempt(home: Path, tmp_path: Path, rung: Rung) -> None:
    script = r"printf '\033[31mred\033[0m \233evil\r\n'; echo attempt $RUNG_ATTEMPT; exit 3"
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"name": "twice", "run": ["sh", "-c", script]}), encoding="utf-8")
    ran = rung("launch", "-f", file)
    assert ran.code == 1
    assert "\x1b" not in ran.out
    first, second = rung("logs", "twice", "-n", "1").out, rung("logs", "twice").out
    assert first.splitlines()[-1] == "attempt 1"
    assert second.splitlines()[-1] == "attempt 2"
    assert first.splitlines()[0].startswith("red ")
    assert "\x9b" not in first and "\x1b" not in first
    (row,) = json.loads(rung("queue", "--json").out)
    assert (row["state"], row["recoveries"]) == ("FAILED", 1)
