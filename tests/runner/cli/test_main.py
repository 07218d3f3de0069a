"""Tests the command line: every command; a wrong argument is one line and exit code 2."""

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
import yaml

from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.cli.main import cli
from rung.runner.state.store import Store
from tests import pace

Rung = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[3]
COMMANDS = sorted(cli.commands)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    spec = {
        "name": "a",
        "run": "python train.py --lr {lr} --clip={clip} --resume {checkpoint}",
        "knobs": {"lr": 1e-3, "clip": False},
        "envs": {"MODE": "it's {precision}"},
        "resources": {"cpus": 2},
        "secrets": ["TOKEN"],
    }
    file.write_text(yaml.safe_dump(spec), encoding="utf-8")
    return file


def submitted(home: Path, *states: JobState) -> str:
    home.mkdir(exist_ok=True)
    store = Store(home / "rung.db")
    with store.transaction():
        spec = JobSpec.model_validate({"name": "a", "run": "x {lr}", "knobs": {"lr": 0.1}})
        job = store.add_job(spec, home, at=1.0)
        for state in states:
            store.move(job.id, state, reason="on its way", at=2.0)
    store.close()
    return job.id


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Help, versions, completion


def test_every_command_of_the_contract_is_there() -> None:
    asked = {"launch", "queue", "logs", "history", "cancel", "retry", "explain", "check", "schema", "controller"}
    assert {*asked, "hosts", "image", "completion", "checkpoints", "ladder", "drill"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, run_rung: Any, home: Path) -> None:
    code, out, err = run_rung(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: rung {command}")
    assert run_rung(command, "-h") == (0, out, "")
    assert not home.exists()


@pytest.mark.parametrize(
    "command", [name for name in COMMANDS if name not in ("logs", "schema", "controller", "completion")]
)
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


def test_the_bash_completion_is_good_bash_and_completes_jobs(home: Path, rung: Rung) -> None:
    job_id = submitted(home)
    script = rung("completion", "bash").out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    env = {"_RUNG_COMPLETE": "bash_complete", "COMP_WORDS": "rung history a", "COMP_CWORD": "2"}
    assert rung(env=env).out.split() == [f"plain,{job_id}"]


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


def test_a_home_that_cannot_be_created_is_an_error(run_rung: Any, home: Path, job: Path) -> None:
    home.write_text("in the way")
    code, _, err = run_rung("launch", job)
    assert code == 2
    assert err.startswith(f"rung: {home}: cannot be created: File exists; set RUNG_HOME")


def test_only_the_owner_can_read_the_home(run_rung: Any, home: Path, job: Path) -> None:
    assert run_rung("launch", job)[0] == 0
    assert home.stat().st_mode & 0o777 == 0o700


# Jobs


def test_launch_queues_the_job_and_warns_without_a_controller(run_rung: Any, home: Path, job: Path) -> None:
    code, out, _ = run_rung("launch", job)
    assert code == 0
    assert out.startswith("submitted a-1\nno controller is running")
    assert json.loads(run_rung("launch", "--json", job)[1]) == {"id": "a-2", "name": "a", "state": "QUEUED"}
    rows = json.loads(run_rung("queue", "--json")[1])
    assert [(row["id"], row["state"], row["recoveries"]) for row in rows] == [
        ("a-1", "QUEUED", 0),
        ("a-2", "QUEUED", 0),
    ]
    assert [line.split()[:3] for line in run_rung("queue")[1].splitlines()] == [
        ["ID", "NAME", "STATE"], ["a-1", "a", "QUEUED"], ["a-2", "a", "QUEUED"],
    ]  # fmt: skip


def test_a_queued_jobs_history_can_be_seen(run_rung: Any, home: Path) -> None:
    job_id = submitted(home)
    code, out, _ = run_rung("history", "--diff", job_id)
    assert (code, out.splitlines()[-1]) == (0, "no attempt yet")
    assert json.loads(run_rung("history", "--json", job_id)[1])["attempts"] == []


def test_cancelling_a_queued_job_and_then_again(run_rung: Any, home: Path) -> None:
    job_id = submitted(home)
    assert run_rung("cancel", job_id) == (0, f"{job_id} is CANCELLED\n", "")
    code, _, err = run_rung("cancel", job_id)
    assert (code, err) == (2, f"rung: job {job_id} is CANCELLED already; there is nothing to cancel\n")


def test_cancelling_a_running_job_requests_its_end(run_rung: Any, home: Path) -> None:
    job_id = submitted(home, JobState.LAUNCHING, JobState.RUNNING)
    assert json.loads(run_rung("cancel", "--json", job_id)[1]) == {
        "id": job_id, "state": "RUNNING", "cancel_requested": True,
    }  # fmt: skip


def test_retrying_a_failed_job_with_another_knob(run_rung: Any, home: Path) -> None:
    job_id = submitted(home, JobState.LAUNCHING, JobState.FAILED)
    data = json.loads(run_rung("retry", "--json", job_id, "--set", "lr=1e-4")[1])
    assert (data["state"], data["knobs"]["lr"]) == ("QUEUED", 1e-4)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("lr", "--set lr: write it as knob=value"),
        ("=3", "--set : no such knob"),
        ("lrr=1", "--set lrr: no such knob; known: lr"),
        ("lr=fast", "--set lr: Input should be a valid number"),
        ("lr=-1", "--set lr: Input should be greater than 0"),
        ("batch=2", "--set batch: the job cannot receive batch"),
    ],
)
def test_a_bad_setting_is_an_error_and_the_job_stays_failed(
    setting: str, message: str, run_rung: Any, home: Path
) -> None:
    job_id = submitted(home, JobState.LAUNCHING, JobState.FAILED)
    code, out, err = run_rung("retry", job_id, "--set", setting)
    assert (code, out) == (2, "")
    assert err.startswith(f"rung: {message}") and err.count("\n") == 1
    assert json.loads(run_rung("queue", "--json")[1])[0]["state"] == "FAILED"


def test_a_running_job_cannot_be_retried(run_rung: Any, home: Path) -> None:
    job_id = submitted(home, JobState.LAUNCHING, JobState.RUNNING)
    code, _, err = run_rung("retry", job_id)
    assert (code, err) == (2, f"rung: job {job_id} is RUNNING; only a FAILED or CANCELLED job can be retried\n")


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


# Dry run


def test_a_dry_run_prints_what_would_be_run_and_writes_nothing(run_rung: Any, home: Path, job: Path) -> None:
    code, out, err = run_rung("launch", "--dryrun", job)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "run   python train.py --lr 0.001" in lines
    assert f"cwd   {job.parent}" in lines
    assert f"log   {home}/jobs/a-1/attempts/1/log" in lines
    assert "limit cpus 2" in lines
    assert """env   MODE='it'"'"'s amp_fp16'""" in lines
    assert "env   TOKEN (secret, its value is not shown)" in lines
    assert any(line.startswith("env   RUNG_KNOBS=") for line in lines)
    assert "rung  lower_lr: lr 0.001 -> 0.0001" in lines
    assert any(line.startswith("rung  fp32: ") for line in lines)
    assert not home.exists()


def test_a_dry_run_as_json_is_the_request(run_rung: Any, home: Path, job: Path) -> None:
    data = json.loads(run_rung("launch", "--dryrun", "--json", job)[1])
    assert data["argv"] == ["python", "train.py", "--lr", "0.001"]
    assert data["cwd"] == str(job.parent)
    assert data["env"]["MODE"] == "it's amp_fp16"
    assert data["secrets"] == ["TOKEN"]
    assert data["ladder"]["lower_lr"] == {"lr": [0.001, 0.0001]}
    assert set(data) >= {"argv", "cwd", "env", "secrets", "limits", "log", "host", "ladder"}
    assert not home.exists()


def test_a_dry_run_beside_a_store_leaves_it_as_it_is(home: Path, job: Path, rung: Rung) -> None:
    submitted(home)
    before = files(home)
    assert f"{home}/jobs/a-2/" in rung("launch", "--dryrun", job).out
    assert files(home) == before


def test_the_run_is_the_one_the_dry_run_printed(home: Path, tmp_path: Path, rung: Rung) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"name": "a", "run": ["echo", "{lr}"], "knobs": {"lr": 0.25}}), encoding="utf-8")
    planned = json.loads(rung("launch", "--dryrun", "--json", file).out)
    assert rung("launch", "-f", file).code == 0
    done = json.loads((home / "jobs/a-1/attempts/1/request.json").read_text())
    assert {name: planned[name] for name in done} == done
    assert rung("logs", "a").out == "0.25\n"


# Explain


def test_explain_reads_a_file_or_standard_input(tmp_path: Path, rung: Rung) -> None:
    log = "step 1 loss 2.0\nRuntimeError: value cannot be converted to type at::Half without overflow\n"
    (tmp_path / "log").write_text(log)
    from_file, from_stdin = rung("explain", "--json", tmp_path / "log"), rung("explain", "--json", "-", stdin=log)
    assert from_file.code == from_stdin.code == 0
    assert json.loads(from_file.out) == json.loads(from_stdin.out)
    (found,) = json.loads(from_file.out)
    assert set(found) == {"fault", "line", "step", "evidence", "note", "first_cause"} and found["first_cause"]
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
def test_explain_of_something_that_is_no_file_is_an_error(
    name: str, message: str, run_rung: Any, tmp_path: Path
) -> None:
    code, out, err = run_rung("explain", tmp_path / name)
    assert (code, out) == (2, "")
    assert err.startswith("rung: ") and message in err and err.count("\n") == 1


def test_explain_of_empty_and_of_binary_files(tmp_path: Path, rung: Rung) -> None:
    (tmp_path / "empty").touch()
    assert rung("explain", tmp_path / "empty").out == "no fault that Rung knows\n"
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
    assert (done.returncode, done.stderr) == (0, "")
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
