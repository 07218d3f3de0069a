"""Tests `rung notify`: who is told, what waits, and what a service answers to a test message."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.model.state import JobState
from rung.runner.cli.review.notify import notify
from rung.runner.notify.apprise_send import MISSING
from rung.runner.state.outbox_rows import NewMessage
from rung.runner.state.store import Store
from tests.support.message_server import TOKEN, MessageServer, status, write_settings
from tests.support.stored_jobs import submitted

Run = Callable[..., tuple[int, str, str]]
SLACK = f"slack://{TOKEN}/B/C"


def test_it_is_named_after_what_it_does() -> None:
    assert notify.name == "notify"


def test_without_a_file_it_says_that_nobody_is_told(home: Path, run_rung: Run) -> None:
    assert run_rung("notify") == (0, f"nobody is told about jobs: there is no {home}/notify.yaml\n", "")
    assert run_rung("notify", "--json") == (0, "[]\n", "")
    code, out, err = run_rung("notify", "--test")
    assert (code, out) == (2, "") and "there is no such file, so nobody is told" in err


def test_it_lists_the_targets_with_what_waits_and_the_last_error(home: Path, run_rung: Run) -> None:
    write_settings(home, {"lab": SLACK, "me": f"json://example.org/{TOKEN}"})
    submitted(home, JobState.FAILED)
    store = Store(home / "rung.db")
    with store.transaction():
        store.add_message(NewMessage(1, "lab", "", ("failed",), "a failed", 5.0))
        store.add_message(NewMessage(1, "lab", "later", ("failed",), "not due yet", 1e11))
        (row, _) = store.outbox()
        store.not_sent("lab", [row], "it answered 500", arrived=False, at=1_000_000.0)
    store.close()
    code, out, _ = run_rung("notify")
    head, lab, me = out.splitlines()
    assert code == 0 and head.split() == ["NAME", "SERVICE", "WAITING", "SENT", "LAST", "SENT", "LAST", "ERROR"]
    assert lab.split()[:4] == ["lab", "slack", "1", "0"] and lab.endswith("it answered 500")
    assert me.split() == ["me", "json://example.org", "0", "0", "-", "-"]
    (shown,) = json.loads(run_rung("notify", "lab", "--json")[1])
    assert (shown["waiting"], shown["error"], shown["error_at"]) == (1, "it answered 500", 1_000_000.0)
    assert TOKEN not in out


def test_a_test_message_says_what_the_service_answered(
    home: Path, run_rung: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with MessageServer().serving() as service:
        write_settings(home, {"lab": service.url, "me": "nosuchservice://a"})
        assert run_rung("notify", "--test", "lab") == (0, "lab (json://127.0.0.1): accepted\n", "")
        assert service.titles == ["Rung: a test message"]
        service.behaviours = [status(500)]
        code, out, err = run_rung("notify", "--test")
    lab, me = out.splitlines()
    assert (code, err) == (1, "")
    assert lab.startswith("lab (json://127.0.0.1): not accepted: ") and "error=500" in lab
    assert me == "me (nosuchservice): not accepted: Apprise does not know such a URL"
    assert TOKEN not in out


def test_an_unknown_name_and_a_file_for_all_eyes_are_refused_in_one_line(home: Path, run_rung: Run) -> None:
    file = write_settings(home, {"lab": SLACK})
    code, out, err = run_rung("notify", "--test", "lap")
    assert (code, out) == (2, "") and err == f"rung: there is no target 'lap' in {file}; it has lab\n"
    file.chmod(0o644)
    code, out, err = run_rung("notify")
    assert (code, out) == (2, "") and err.endswith(f"forbid that: chmod 600 {file}\n") and err.count("\n") == 1


def test_without_apprise_it_says_what_to_install(
    home: Path, run_rung: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "apprise.py").write_text("raise ImportError", encoding="ascii")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "without"))
    write_settings(home, {"lab": SLACK})
    code, out, _ = run_rung("notify", "--test")
    assert code == 1
    assert out == f"lab (slack): not accepted: {MISSING}\n" and "rung[notify]" in MISSING


def test_a_job_that_names_an_unknown_target_is_refused_before_it_is_queued(
    home: Path, run_rung: Run, tmp_path: Path
) -> None:
    write_settings(home, {"lab": SLACK})
    file = tmp_path / "job.yaml"
    fields: dict[str, Any] = {"name": "a", "run": "true", "notify": ["lap"]}
    file.write_text(yaml.safe_dump(fields), encoding="ascii")
    code, _, err = run_rung("launch", file)
    assert (
        code == 2 and err == f"rung: a: notify: there is no target 'lap' in {home}/notify.yaml; did you mean 'lab'?\n"
    )
    code, out, _ = run_rung("check", file)
    assert code == 1 and "there is no target 'lap'" in out
    assert run_rung("queue")[1].startswith("no jobs yet")
