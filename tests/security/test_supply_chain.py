"""Tests that everything Rung installs is pinned or signed, and that `make audit` tells what it could ask."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import audit

ROOT = Path(__file__).resolve().parents[2]
ANSIBLE = ROOT / "ansible"
SIGNED = yaml.safe_load((ANSIBLE / "group_vars/all.yml").read_text())["provision_signed"]
KEYWORDS = {
    *(
        "name",
        "when",
        "vars",
        "register",
        "changed_when",
        "failed_when",
        "check_mode",
        "loop",
        "loop_control",
        "notify",
    ),
    *("delegate_to", "become", "become_user", "run_once", "environment", "no_log", "until", "retries", "delay", "tags"),
    *("block", "rescue"),
}


def tasks() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield every task of the playbooks and roles with its file."""
    for file in [*ANSIBLE.glob("*.yml"), *ANSIBLE.glob("roles/*/*/*.yml")]:
        loaded = yaml.safe_load(file.read_text())
        waiting = list(loaded) if isinstance(loaded, list) else []
        while waiting:
            task = waiting.pop()
            parts = [task.get(key) or [] for key in ("tasks", "pre_tasks", "block", "rescue")]
            waiting += [each for part in parts for each in part]
            if "hosts" not in task:
                yield file, task


def test_the_playbooks_use_only_modules_that_come_with_ansible_core() -> None:
    """So there is no collection to pin."""
    modules = {key for _, task in tasks() for key in task if key not in KEYWORDS}
    assert len(modules) > 10
    assert not {name for name in modules if not name.startswith("ansible.builtin.")}
    assert not list(ANSIBLE.rglob("requirements.yml"))


def test_the_playbooks_download_nothing_by_an_address() -> None:
    downloads = {"get_url", "uri", "apt_key", "apt_repository", "git", "unarchive", "shell", "raw"}
    for file, task in tasks():
        assert not downloads & {key.removeprefix("ansible.builtin.") for key in task}, f"{file}: {task['name']}"


@pytest.mark.parametrize(
    "line",
    [
        "deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.asc] https://example.org/linux/debian bookworm stable",
        "deb [signed-by=/etc/apt/keyrings/rung-nvidia.asc] https://example.org/ /",
        "deb [trusted=yes] file:/srv/packages ./",
    ],
)
def test_an_apt_source_with_a_key_or_on_the_hosts_own_disk_is_accepted(line: str) -> None:
    assert re.match(SIGNED, line)


@pytest.mark.parametrize(
    "line",
    [
        "deb https://example.org/linux/debian bookworm stable",
        "deb [trusted=yes] https://example.org/ ./",
        "deb [trusted=yes signed-by=/etc/key.asc] https://example.org/ ./",
        "deb [signed-by=/etc/key.asc trusted=yes] https://example.org/ ./",
        "deb [signed-by=/etc/key.asc] https://example.org/ ./\ndeb [trusted=yes] https://example.org/ ./",
        "deb [signed-by=/etc/key.asc allow-insecure=yes] https://example.org/ ./",
        "deb [allow-insecure=yes] http://example.org/ ./",
    ],
)
def test_an_apt_source_that_anybody_could_have_changed_is_refused(line: str) -> None:
    """0.1.0 wrote any line."""
    assert not re.match(SIGNED, line)


@pytest.mark.parametrize("role", ["docker", "nvidia"])
def test_the_line_is_checked_before_it_is_written(role: str) -> None:
    names = [task["name"] for task in yaml.safe_load((ANSIBLE / f"roles/{role}/tasks/main.yml").read_text())]
    written = next(place for place, name in enumerate(names) if name.startswith("Name the source of"))
    assert names.index("Refuse a source whose packages nobody signs") < written


def test_every_line_of_the_lock_file_is_one_exact_version() -> None:
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line) for line in lines)
    assert not any("pip-audit" in line.replace("_", "-") for line in lines), "it is in an environment of its own"


# make audit


def audited(folder: Path, capsys: pytest.CaptureFixture[str], said: object, errors: str, code: int) -> tuple[int, str]:
    """Run the audit with a pip-audit that gives this answer."""
    program = folder / "pip-audit"
    (folder / "said").write_text(said if isinstance(said, str) else json.dumps(said))
    program.write_text(f"#!/bin/sh\ncat {folder}/said\necho '{errors}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return audit.main([str(program)]), capsys.readouterr().out


def test_a_vulnerability_is_named_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = {"name": "click", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
    said = {"dependencies": [bad, {"name": "torch", "version": "2", "vulns": []}, {"name": "x", "skip_reason": "gone"}]}
    code, shown = audited(tmp_path, capsys, said, "Found 1 known vulnerability", 1)
    assert code == 1
    assert "click 1.0: PYSEC-1, fixed in 1.1" in shown
    assert "could not be asked about 1 of 3 packages: x" in shown
    assert "1 of 2 packages have a known vulnerability" in shown


def test_no_vulnerability_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = {"dependencies": [{"name": "click", "version": "1.0", "vulns": []}]}
    assert audited(tmp_path, capsys, said, "", 0) == (0, "audit: 0 of 1 packages have a known vulnerability\n")


@pytest.mark.parametrize("said", ["", "{", "[]", '{"other": 1}'])
def test_a_database_that_cannot_be_reached_is_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    code, shown = audited(tmp_path, capsys, said, "no route to the database", 1)
    assert code == 0
    assert shown == "audit: the database of vulnerabilities could not be asked: no route to the database\n"


def test_a_database_that_knows_none_of_the_packages_was_not_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {"dependencies": [{"name": "click", "skip_reason": "not found"}, {"name": "x", "skip_reason": "not found"}]}
    code, shown = audited(tmp_path, capsys, said, "", 0)
    assert (code, shown) == (0, "audit: the database of vulnerabilities could not be asked: not found\n")


def test_an_audit_without_its_program_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main([str(tmp_path / "pip-audit")]) == 0
    assert "could not be asked" in capsys.readouterr().out
