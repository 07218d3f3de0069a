"""Tests the command line: help, wrong arguments, explain, schema, pipes and make."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from rung.jobs.spec.job_spec import JobSpec
from rung.runner.cli.main import cli
from tests import pace
from tests.support.stored_jobs import submitted

Rung = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[3]
COMMANDS = sorted(cli.commands)
WITHOUT_JSON = ("demo", "export", "follow", "logs", "metrics", "schema", "controller", "top", "web", "completion")


# Help, versions, completion


def test_every_documented_command_exists() -> None:
    asked = {"launch", "queue", "logs", "history", "cancel", "retry", "explain", "check", "schema", "controller"}
    assert {*asked, "hosts", "image", "completion", "checkpoints", "ladder", "drill"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, run_rung: Any, home: Path) -> None:
    code, out, err = run_rung(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: rung {command}")
    assert run_rung(command, "-h") == (0, out, "")
    assert not home.exists()


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in WITHOUT_JSON])
def test_every_command_that_prints_data_prints_json_too(command: str) -> None:
    found = cli.commands[command]
    for each in found.commands.values() if isinstance(found, click.Group) else [found]:
        assert any("--json" in parameter.opts for parameter in each.params)


def test_help_lists_the_commands_and_the_version_is_printed(rung: Rung) -> None:
    ran = rung("--help")
    assert ran.code == 0
    assert all(f"\n  {command} " in ran.out for command in COMMANDS)
    assert rung("--version").out.startswith("rung, version 0.")


def test_without_arguments_the_help_is_shown(run_rung: Any) -> None:
    code, out, err = run_rung()
    assert (code, err) == (0, "")
    assert out.startswith("Usage: rung [OPTIONS] COMMAND")


@pytest.mark.parametrize(("shell", "mark"), [("bash", "complete -o"), ("zsh", "#compdef rung"), ("fish", "complete ")])
def test_completion_scripts_are_printed_for_three_shells(shell: str, mark: str, run_rung: Any) -> None:
    code, out, _ = run_rung("completion", shell)
    assert code == 0
    assert mark in out and "_RUNG_COMPLETE" in out


def test_the_bash_completion_is_valid_and_completes_jobs(home: Path, rung: Rung) -> None:
    job_id = submitted(home)
    script = rung("completion", "bash").out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    env = {"_RUNG_COMPLETE": "bash_complete", "COMP_WORDS": "rung history a", "COMP_CWORD": "2"}
    assert rung(env=env).out.split() == [f"plain,{job_id}"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("rung cancel s", ["seeds-grid-1", "seeds-seed-1-1", "seeds-seed-2-2"]),
        ("rung queue --group s", ["seeds-grid-1"]),
        ("rung compare --group s", ["seeds-grid-1"]),
        ("rung history s", ["seeds-seed-1-1", "seeds-seed-2-2"]),
        ("rung launch --from s", ["seeds-seed-1-1", "seeds-seed-2-2"]),
    ],
)
def test_groups_are_completed_where_a_command_takes_one(
    home: Path, tmp_path: Path, rung: Rung, words: str, offered: list[str]
) -> None:
    job = tmp_path / "seeds.yaml"
    job.write_text("name: seeds\nrun: python train.py --seed {seed}\n")
    rung("launch", str(job), "--grid", "seed=1,2", env={"RUNG_CONTROLLER": "manual"})
    env = {"_RUNG_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    assert rung(env=env).out.split() == [f"plain,{each}" for each in offered]


def test_the_list_of_commands_has_whole_sentences(run_rung: Any) -> None:
    _, out, _ = run_rung("--help")
    commands = out.partition("Commands:\n")[2]
    assert commands and "..." not in commands


# Wrong arguments


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["queue", "--nope"], "No such option"),
        (["history"], "Missing argument 'JOB'"),
        (["history", "x", "y"], "unexpected extra argument"),
        (["logs", "a", "-n", "0"], "-n"),
        (["logs", "a", "-n", "two"], "not a valid integer"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
        (["explain"], "Missing argument 'LOG'"),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_code_2(args: list[str], message: str, run_rung: Any, home: Path) -> None:
    code, out, err = run_rung(*args)
    assert (code, out) == (2, "")
    assert err.startswith("rung: ") and err.endswith("; see --help\n")
    assert message in err
    assert not home.exists()


def test_the_queue_of_a_missing_home_is_empty(run_rung: Any, home: Path) -> None:
    assert run_rung("queue", "--json") == (0, "[]\n", "")
    assert run_rung("queue")[1].startswith("no jobs yet")
    assert not home.exists()


@pytest.mark.parametrize("args", [["history", "a"], ["logs", "a"], ["cancel", "a"], ["retry", "a"]])
def test_without_a_store_nothing_is_created(args: list[str], run_rung: Any, home: Path) -> None:
    code, out, err = run_rung(*args)
    assert (code, out) == (2, "")
    assert err == f"rung: {home}: there is no store yet; submit a job with `rung launch FILE`\n"
    assert not home.exists()


@pytest.mark.parametrize("command", ["history", "logs", "cancel", "retry"])
def test_an_unknown_job_is_an_error(command: str, run_rung: Any, home: Path) -> None:
    submitted(home)
    assert run_rung(command, "no'such") == (2, "", 'rung: there is no job "no\'such"; `rung queue` lists them\n')


def test_a_home_that_cannot_be_created_is_an_error(run_rung: Any, home: Path, job_file: Path) -> None:
    home.write_text("in the way")
    code, _, err = run_rung("launch", job_file)
    assert code == 2
    assert err.startswith(f"rung: {home}: cannot be created: File exists; set RUNG_HOME")


def test_only_the_owner_can_read_the_home(run_rung: Any, home: Path, job_file: Path) -> None:
    assert run_rung("launch", job_file)[0] == 0
    assert home.stat().st_mode & 0o777 == 0o700


# Explain


def test_explain_reads_a_file_or_standard_input(tmp_path: Path, rung: Rung) -> None:
    log = "step 1 loss 2.0\nRuntimeError: value cannot be converted to type at::Half without overflow\n"
    (tmp_path / "log").write_text(log)
    from_file, from_stdin = rung("explain", "--json", tmp_path / "log"), rung("explain", "--json", "-", stdin=log)
    assert from_file.code == from_stdin.code == 0
    assert json.loads(from_file.out) == json.loads(from_stdin.out)
    (found,) = json.loads(from_file.out)
    fields = {"fault", "line", "step", "evidence", "note", "first_cause", "would", "may_show", "why"}
    assert set(found) == fields and found["first_cause"] and not found["may_show"]
    assert (found["fault"], found["line"]) == ("fp16_overflow", 2)
    assert rung("explain", tmp_path / "log").out.startswith("line 2: step 1 fp16_overflow: ")


def test_explain_lists_by_line_and_marks_the_first_cause(tmp_path: Path, rung: Rung) -> None:
    hidden = "{'loss': 0.0, 'grad_norm': nan, 'epoch': 0.1}\n"
    (tmp_path / "log").write_text(f"step 1 loss 2.0\n{hidden * 3}RuntimeError: CUDA error: misaligned address\n")
    found = json.loads(rung("explain", "--json", tmp_path / "log").out)
    assert [(row["fault"], row["line"], row["first_cause"]) for row in found] == [
        ("grad_nonfinite", 2, False),
        ("nan_loss", 3, True),
        ("cuda_fault", 5, False),
    ]
    assert "logging_nan_inf_filter" in found[1]["note"]
    output = rung("explain", tmp_path / "log").out
    assert output.count("(first cause)") == 1 and "logging_nan_inf_filter" in output


@pytest.mark.parametrize(("name", "message"), [("missing", "No such file"), (".", "Is a directory")])
def test_explain_of_a_missing_file_or_a_folder_is_an_error(
    name: str, message: str, run_rung: Any, tmp_path: Path
) -> None:
    code, out, err = run_rung("explain", tmp_path / name)
    assert (code, out) == (2, "")
    assert err.startswith("rung: ") and message in err and err.count("\n") == 1


def test_explain_reads_empty_and_binary_files(tmp_path: Path, rung: Rung) -> None:
    (tmp_path / "empty").touch()
    assert rung("explain", tmp_path / "empty").out.startswith("no fault that Rung knows\nread 0 lines: no step ")
    assert json.loads(rung("explain", "--json", tmp_path / "empty").out) == []
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 500 + b"\x1b[2Jloss: nan \x1b[31m\n" * 3)
    ran = rung("explain", tmp_path / "binary")
    assert ran.code == 0
    assert "\x1b" not in ran.out


# Schema, pipes, make


def test_the_schema_is_that_of_the_job_file(run_rung: Any) -> None:
    code, out, _ = run_rung("schema")
    assert code == 0
    data = json.loads(out)
    assert data["additionalProperties"] is False
    assert set(data["properties"]) == set(JobSpec.model_fields)
    assert data == JobSpec.model_json_schema()


def test_a_closed_pipe_is_no_error(home: Path, rung: Rung) -> None:
    submitted(home)
    command = f"'{Path(sys.executable).parent}/rung' schema | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "{", "")


def make(*args: str) -> subprocess.CompletedProcess[str]:
    # -o: do not set up the virtual environment again.
    command = ["make", "-s", "-C", str(ROOT), "-o", ".venv/ready", *args]
    return pace.run(command, capture_output=True, text=True, env=dict(os.environ), usual=60, check=False)


def test_make_takes_job_names_and_paths_with_spaces_and_quotes(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a b; touch owned"
    folder.mkdir()
    file = folder / 'it\'s "mine" & `touch owned`.yaml'
    file.write_text("name: it's \"mine\"; touch owned\nrun: 'true'\n", encoding="utf-8")
    done = make("submit", f"JOB={file}")
    assert done.returncode == 0 and done.stderr.startswith("no controller is running") and done.stderr.count("\n") == 1
    assert done.stdout.startswith("submitted it-s-mine-touch-owned-1\n")
    name = 'it\'s "mine"; touch owned'
    assert "no attempt yet" in make("history", f"JOB={name}").stdout
    assert "CANCELLED" in make("cancel", f"JOB={name}").stdout
    assert "CANCELLED" in make("queue").stdout
    assert not list(tmp_path.rglob("owned"))
    assert not (ROOT / "owned").exists()


def test_make_without_a_job_is_an_error(home: Path) -> None:
    done = make("submit")
    assert done.returncode == 2
    assert "rung: say which one: make submit JOB=..." in done.stderr
    assert not home.exists()


@pytest.mark.parametrize("form", ["$(shell touch {})", "`touch {}`", "$$(touch {})", "${{shell touch {}}}"])
def test_make_expands_nothing_in_a_job_name(form: str, home: Path, tmp_path: Path) -> None:
    evil = form.format(tmp_path / "owned")
    done = make("history", f"JOB={evil}")
    assert done.returncode == 2
    assert not (tmp_path / "owned").exists()
