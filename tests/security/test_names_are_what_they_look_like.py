"""Tests that names hide nothing and turn no text around. In 0.1.0 a U+202E in a job's name reached the terminal."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import InventoryError, SpecError
from rung.jobs.model.terminal_text import clean, hidden_character
from rung.jobs.spec.load import parse_spec
from rung.runner.hosts.host_list import parse_hosts
from tests.support.stored_jobs import submitted

Rung = Callable[..., Any]
TURNED = "\u202egnp.exe"
HIDDEN = ("\u202e", "\u2066", "\u200f", "\u061c", "\u200b", "\u00ad", "\ufeff", "\u3164", "\U000e0041", "\x9b", "\x7f")
FIELDS = {
    "name": "name: {}\nrun: x\n",
    "success.metric": "name: a\nrun: x\nsuccess: {{metric: {}, below: 1}}\n",
    "validation.metric": "name: a\nrun: x\nvalidation: {{metric: {}}}\n",
    "recovery.rules[0].name": "name: a\nrun: x\nrecovery: {{rules: [{{name: {}, pattern: x, fault: oom}}]}}\n",
}


@pytest.mark.parametrize("char", HIDDEN, ids=hidden_character)
@pytest.mark.parametrize("field", FIELDS)
def test_a_job_file_with_such_a_name_is_refused(field: str, char: str) -> None:
    with pytest.raises(SpecError) as raised:
        parse_spec(FIELDS[field].format(f'"good\\U{ord(char):08x}name"').encode())
    (problem,) = raised.value.problems
    assert f"{field}: no " in problem
    assert clean(problem) == problem


@pytest.mark.parametrize("name", ["größe 8", "训练", "обучение", "تدريب", "emoji 🚀", "a\u0301", "x/validate-fp32"])
def test_names_in_any_language_are_accepted(name: str) -> None:
    assert parse_spec(f"name: {name}\nrun: x\n".encode()).name == name


@pytest.mark.parametrize("char", ["\u202e", "\u200b", "\u2066"], ids=hidden_character)
def test_a_host_or_a_user_with_such_a_name_is_refused(char: str) -> None:
    for text in (f'all: {{hosts: {{"ti{char}tan": }}}}', f'all: {{hosts: {{t: {{ansible_user: "ro{char}ot"}}}}}}'):
        with pytest.raises(InventoryError) as raised:
            parse_hosts(text.encode())
        assert char not in clean(str(raised.value))


def test_such_a_name_that_is_stored_already_is_shown_without_it(home: Path, rung: Rung) -> None:
    job_id = submitted(home)
    with sqlite3.connect(home / "rung.db") as store:
        (text,) = store.execute("SELECT spec FROM jobs").fetchone()
        spec = json.dumps({**json.loads(text), "name": TURNED})
        store.execute("UPDATE jobs SET name = ?, spec = ?", (TURNED, spec))
    store.close()
    for words in (["queue"], ["queue", "--wide"], ["history", job_id], ["cancel", job_id]):
        ran = rung(*words)
        assert ran.code == 0
        assert "\u202e" not in ran.out + ran.err
    assert "gnp.exe" in rung("queue", "--wide").out


def test_what_check_finds_cannot_control_the_terminal(home: Path, tmp_path: Path, rung: Rung) -> None:
    """0.1.0 printed the findings of `rung check` as they were, with the folder of the job file."""
    folder = tmp_path / f"jobs\x1b]0;x\x07{TURNED}"
    folder.mkdir()
    (folder / "job.yaml").write_text("name: a\nrun: x\nworkdir: none\n", encoding="utf-8")
    ran = rung("check", folder / "job.yaml", env={"RUNG_HOSTS": "/dev/null"})
    assert ran.code in (1, 2)
    assert not {"\x1b", "\x07", "\u202e"} & set(ran.out + ran.err)
