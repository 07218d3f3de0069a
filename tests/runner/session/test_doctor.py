"""Tests `rung doctor`: files and folders, findings and exit codes, unreadable files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rung.recovery.doctor.examine import RULES
from rung.recovery.doctor.rules.rule import ORDER
from rung.runner.cli.doctor import LEVELS

BAD = "import torch\nscaler = torch.amp.GradScaler()\ndef loss(x, m):\n    return x.masked_fill(m, -1e9)\n"
WEAK = "import torch\nscaler = torch.amp.GradScaler()\ndef loss(x):\n    return torch.exp(x)\n"
GOOD = "import torch\ndef loss(x, m):\n    return x.masked_fill(m, float('-inf'))\n"


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


Rung = Callable[..., Done]


@pytest.fixture
def rung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_rung: Callable[..., Any]) -> Rung:
    """Return a function that runs `rung doctor` in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    return lambda *args: Done(*run_rung("doctor", *args))


def as_json(rung: Rung, *args: str) -> dict[str, Any]:
    output = json.loads(rung("--json", *args).stdout)
    assert isinstance(output, dict)
    return output


def test_an_error_is_shown_with_its_line_why_and_fix_and_exit_code_1(tmp_path: Path, rung: Rung) -> None:
    (tmp_path / "train.py").write_text(BAD)
    done = rung("train.py")
    assert done.returncode == 1
    assert "train.py:4: error: masked_fill with -1000000000.0" in done.stdout
    assert "[fill-beyond-fp16]" in done.stdout
    assert "why: " in done.stdout
    assert "fix: " in done.stdout
    assert done.stdout.splitlines()[-1] == "1 file, 1 in FP16: 1 error, 0 warnings, 0 notes"


@pytest.mark.parametrize(("text", "code"), [(GOOD, 0), (WEAK, 0), (BAD, 1), ("def f(:\n", 2)])
def test_the_exit_code_means_clean_errors_or_bad_input(text: str, code: int, tmp_path: Path, rung: Rung) -> None:
    (tmp_path / "train.py").write_text(text)
    assert rung("train.py").returncode == code


def test_a_folder_is_read_without_third_party_code(tmp_path: Path, rung: Rung) -> None:
    for name in ("a/train.py", ".venv/x.py", "a/__pycache__/x.py", "site-packages/x.py", "a/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(BAD)
    output = as_json(rung, ".")
    assert [finding["file"] for finding in output["findings"]] == ["a/train.py"]
    assert output["files"] == 1


def test_a_file_that_an_fp16_script_imports_is_judged_as_fp16(tmp_path: Path, rung: Rung) -> None:
    (tmp_path / "model.py").write_text("import torch\ndef loss(x, m):\n    return x.masked_fill(m, -1e9)\n")
    assert [each["severity"] for each in as_json(rung, "model.py")["findings"]] == ["note"]
    assert [each["severity"] for each in as_json(rung, "--fp16", "model.py")["findings"]] == ["error"]
    (tmp_path / "train.py").write_text("import torch\nfrom model import loss\nscaler = torch.amp.GradScaler()\n")
    assert [each["severity"] for each in as_json(rung, ".")["findings"]] == ["error"]


def test_one_bad_file_does_not_hide_the_findings_of_the_others(tmp_path: Path, rung: Rung) -> None:
    (tmp_path / "a.py").write_text("x = 1\nprint 'old'\n")
    (tmp_path / "b.py").write_text(BAD)
    done = rung(".")
    assert done.returncode == 2
    assert "b.py:4: error:" in done.stdout
    assert done.stderr.startswith("rung: a.py:2: syntax error: ")
    assert len(done.stderr.splitlines()) == 1


def test_pipes_and_missing_files_are_one_line_each_and_links_are_skipped(tmp_path: Path, rung: Rung) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "self").symlink_to(tmp_path)
    (tmp_path / "link.py").symlink_to("/etc/passwd")
    done = rung(".", "missing.py")
    assert done.returncode == 2
    assert sorted(done.stderr.splitlines()) == [
        "rung: missing.py: No such file or directory",
        "rung: pipe.py: not a file",
    ]


def test_names_and_code_cannot_send_control_codes_to_the_terminal(tmp_path: Path, rung: Rung) -> None:
    (tmp_path / "a\x1b[2Jb.py").write_text(BAD.replace("-1e9", "-1e9 if '\x1b[31m' else -1e9"))
    (tmp_path / "b\x1b[2J.py").write_text("def f(:\n")
    done = rung(".")
    assert "\x1b" not in done.stdout + done.stderr
    assert done.returncode == 2


def test_a_rule_can_be_silenced_and_a_misspelt_one_is_an_error(tmp_path: Path, rung: Rung) -> None:
    (tmp_path / "a.py").write_text(BAD.rstrip() + "  # rung: ignore[fill-beyond-fp16]\n")
    assert rung("a.py").returncode == 0
    (tmp_path / "a.py").write_text(BAD.rstrip() + "  # rung: ignore[fill-beyond]\n")
    done = rung("a.py")
    assert (done.returncode, done.stderr) == (2, "rung: a.py:4: no rule is called fill-beyond\n")


def test_the_level_hides_findings_and_changes_no_exit_code(tmp_path: Path, rung: Rung) -> None:
    (tmp_path / "a.py").write_text(BAD + WEAK)
    assert "exp-without-clip" in rung("a.py").stdout
    done = rung("--level", "error", "a.py")
    assert "exp-without-clip" not in done.stdout
    assert done.returncode == 1


def test_the_rules_are_listed_and_are_all_in_the_page(rung: Rung) -> None:
    done = rung("--rules")
    page = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert done.returncode == 0
    for rule in RULES:
        assert f"{rule.name}: {rule.what}" in done.stdout
        assert f"| `{rule.name}` | {rule.in_fp16} | {rule.elsewhere or '-'} |" in page


def test_the_levels_are_those_of_the_rules() -> None:
    assert tuple(map(str, ORDER)) == LEVELS


def test_no_argument_is_a_usage_error(rung: Rung) -> None:
    done = rung()
    assert (done.returncode, done.stdout) == (2, "")
    assert "say which script" in done.stderr
