"""Tests `rung queue`: its filters, its width with and without a terminal, and its colours."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.store import Store

Rung = Callable[..., Any]
LONG = "waits for an A100: " + ", ".join(f"host{number}'s are in use" for number in range(30))


@pytest.fixture
def jobs(home: Path) -> None:
    """Write three jobs: one of last week that failed, one of yesterday, and a new one with a long reason."""
    home.mkdir()
    store = Store(home / "rung.db")
    now = time.time()
    with store.transaction():
        old = store.add_job(JobSpec(name="old one", run=("x",)), home, at=now - 7 * 86_400)
        store.move(old.id, JobState.FAILED, reason="no host", at=now)
        store.add_job(JobSpec(name="older", run=("x",)), home, at=now - 86_400)
        new = store.add_job(JobSpec(name="new", run=("x",)), home, at=now)
        store.set_reason(new.id, LONG)
    store.close()


def names(run_rung: Any, *words: str) -> list[str]:
    return [row["name"] for row in json.loads(run_rung("queue", "--json", *words)[1])]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], ["old one", "older", "new"]),
        (["--state", "FAILED"], ["old one"]),
        (["--state", "failed", "--state", "QUEUED"], ["old one", "older", "new"]),
        (["--name", "old*"], ["old one", "older"]),
        (["--since", "2d"], ["older", "new"]),
        (["--since", "1h"], ["new"]),
        (["--since", "2020-01-01"], ["old one", "older", "new"]),
        (["--limit", "2"], ["older", "new"]),
        (["--state", "QUEUED", "--limit", "1", "--name", "o*"], ["older"]),
    ],
)
def test_text_and_json_have_the_same_filters(jobs: None, run_rung: Any, words: list[str], found: list[str]) -> None:
    assert names(run_rung, *words) == found
    shown = run_rung("queue", "--wide", *words)[1].splitlines()[1:]
    assert [re.split(r" {2,}", line)[1] for line in shown] == found


def test_filters_that_match_nothing_say_so(jobs: None, run_rung: Any) -> None:
    assert run_rung("queue", "--name", "nobody")[:2] == (0, "no job matches; `rung queue` lists all of them\n")
    assert run_rung("queue", "--name", "nobody", "--json")[:2] == (0, "[]\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--state", "BROKEN"], "'BROKEN' is not one of 'QUEUED', 'LAUNCHING'"),
        (["--since", "yesterday"], "--since yesterday: write how long ago, such as 30m, 2h or 3d, or a date"),
        (["--since", ""], "--since : write how long ago"),
        (["--limit", "0"], "0 is not in the range"),
        (["--limit", "all"], "'all' is not a valid integer"),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_bad_filter_is_one_line_and_exit_code_2(
    words: list[str], message: str, form: list[str], run_rung: Any, home: Path
) -> None:
    code, out, err = run_rung("queue", *words, *form)
    assert (code, out) == (2, "")
    assert err.startswith("rung: ") and message in err and err.count("\n") == 1
    assert not home.exists()


@pytest.mark.parametrize(("columns", "width"), [(None, 80), ("100", 100), ("wide", 80)])
def test_without_a_terminal_lines_have_80_columns_unless_columns_is_set(
    jobs: None, run_rung: Any, monkeypatch: pytest.MonkeyPatch, columns: str | None, width: int
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.__stdout__", None)
    lines = run_rung("queue")[1].splitlines()
    assert max(map(len, lines)) == len(lines[-1]) == width
    assert lines[-1].endswith("…")


def test_wide_shows_the_whole_reason(jobs: None, run_rung: Any) -> None:
    assert run_rung("queue", "--wide")[1].splitlines()[-1].endswith(f"  {LONG}")
    assert json.loads(run_rung("queue", "--json")[1])[-1]["reason"] == LONG
