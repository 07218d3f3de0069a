"""Tests the request built from a job file: what reaches the command, and what never does."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import EngineError
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import KNOB_NAMES, Precision
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.knob_spec import PLACEHOLDERS
from rung.runner.engines.process import ProcessEngine
from rung.runner.files.inside import INSIDE
from rung.runner.launch.render import fill_command
from rung.runner.launch.request import build_request, find_secrets, start_attempt
from rung.runner.seams.engine import Request

Rung = Callable[..., Any]
HOME = HomePaths(Path("/h"))
NOTHING = dict.fromkeys(PLACEHOLDERS, "")


def build(
    environ: dict[str, str] | None = None, *, resumed: str | None = None, gpus: tuple[Gpu, ...] = (), **fields: Any
) -> Request:
    spec = JobSpec.model_validate({"name": "a", "run": "true", **fields})
    job = Job("a-1", spec, JobState.LAUNCHING, "", 0.0, 0.0, spec.knobs.knobs())
    attempt = Attempt("a-1", 2, "localhost", job.knobs, None, "", resumed_from=resumed, gpus=gpus)
    return build_request(job, attempt, HOME, Path("/origin"), environ or {})


def test_a_process_sees_the_gpus_that_it_has_leased_and_without_a_request_what_the_controller_sees() -> None:
    inherited = {"CUDA_VISIBLE_DEVICES": "0,1,2"}
    assert build(inherited).env["CUDA_VISIBLE_DEVICES"] == "0,1,2"
    assert "CUDA_VISIBLE_DEVICES" not in build().env
    leased = tuple(Gpu("A100", (8, 0), index, f"GPU-{index}") for index in (1, 2))
    assert build(inherited, gpus=leased).env["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"


def test_a_command_with_ranks_is_started_under_torchrun_by_its_own_python() -> None:
    run = "/opt/venv/bin/python train.py --lr {lr}"
    plain = ("/opt/venv/bin/python", "train.py", "--lr", "0.1")
    assert build(run=run, knobs={"lr": 0.1}).argv == plain
    assert build(run=run, knobs={"lr": 0.1}, ranks=2).argv == (plain[0], "-m", "rung_inside.ranks", "2", *plain)
    leased = tuple(Gpu("A100", (8, 0), index, f"GPU-{index}") for index in (1, 2))
    request = build(run="python train.py", ranks="gpus", resources={"gpu": ["A100:2", "P100:1"]}, gpus=leased)
    assert request.argv == ("python", "-m", "rung_inside.ranks", "2", "python", "train.py")


# Filling the command


def test_every_placeholder_is_filled() -> None:
    values = {name: f"<{name}>" for name in PLACEHOLDERS}
    words = tuple(f"--{name}={{{name}}}" for name in PLACEHOLDERS)
    assert fill_command(words, values) == tuple(f"--{name}=<{name}>" for name in PLACEHOLDERS)


@pytest.mark.parametrize(
    ("words", "filled"),
    [
        (("x", "--resume", "{checkpoint}", "y"), ("x", "y")),
        (("x", "--clip={clip}"), ("x",)),
        (("x", "clip={clip}"), ("x",)),
        (("x", "{checkpoint}", "y"), ("x", "y")),
        (("x", "--dir", "{checkpoint}/sub"), ("x", "--dir", "/sub")),
        (("x", "--flag", "", "--resume", "{checkpoint}"), ("x", "--flag", "")),
        (("x", "--a={clip}{lr}"), ("x",)),
    ],
)
def test_an_option_without_a_value_is_left_out(words: tuple[str, ...], filled: tuple[str, ...]) -> None:
    assert fill_command(words, NOTHING) == filled


def test_an_option_with_a_value_stays() -> None:
    values = {**NOTHING, "checkpoint": "/c/step 5.pt", "clip": "1"}
    words = ("x", "--resume", "{checkpoint}", "--clip={clip}", "{{checkpoint}}", "{{}}", "{ }")
    assert fill_command(words, values) == (
        "x", "--resume", "/c/step 5.pt", "--clip=1", "{checkpoint}", "{}", "{ }",
    )  # fmt: skip


@given(st.lists(st.text(), min_size=1), st.text(min_size=1))
def test_one_placeholder_stays_one_argument_whatever_its_characters(words: list[str], value: str) -> None:
    plain = tuple(word.replace("{", "").replace("}", "") for word in words)
    assert fill_command(plain, NOTHING) == plain
    values = {**NOTHING, "checkpoint": value}
    assert fill_command((*plain, "--resume={checkpoint}"), values) == (*plain, f"--resume={value}")


@given(st.text())
def test_doubled_braces_become_single_ones(text: str) -> None:
    doubled = text.replace("{", "{{").replace("}", "}}")
    assert fill_command((f"-{doubled}",), NOTHING) == (f"-{text}",)


# The request


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_a_knob_reaches_the_command_with_all_its_digits(lr: float) -> None:
    request = build(run="x {lr}", knobs={"lr": lr})
    assert float(request.argv[1]) == lr == json.loads(request.env["RUNG_KNOBS"])["lr"]


@pytest.mark.parametrize(("lr", "text"), [(1e-3, "0.001"), (5, "5.0"), (1e-5, "1e-05"), (0.0012345678, "0.0012345678")])
def test_a_float_is_written_as_python_writes_it(lr: float, text: str) -> None:
    assert build(run="x {lr}", knobs={"lr": lr}).argv == ("x", text)


def test_the_command_keeps_the_type_of_every_number() -> None:
    knobs = {"lr": 1, "clip": 1, "growth_interval": 2000, "batch": 8, "accumulation": 2}
    words = build(run=["x", *(f"{{{name}}}" for name in knobs)], knobs=knobs).argv[1:]
    # As the configurator of nanoGPT does: it refuses a value whose type is not that of the default.
    read = {name: ast.literal_eval(word) for name, word in zip(knobs, words, strict=True)}
    assert read == knobs
    assert {name for name, value in read.items() if isinstance(value, float)} == {"lr", "clip"}


def test_precision_has_the_name_that_the_script_uses() -> None:
    knobs = {"precision": "bf16", "precision_text": {"bf16": "bfloat16"}}
    request = build(run="x {precision}", envs={"P": "{precision}"}, knobs=knobs)
    assert (request.argv[1], request.env["P"]) == ("bfloat16", "bfloat16")
    assert json.loads(request.env["RUNG_KNOBS"])["precision"] == Precision.BF16
    assert build(run="x {precision}", knobs={"precision": "fp32"}).argv[1] == "fp32"


@pytest.mark.parametrize(
    ("knobs", "mode"),
    [
        ({}, "flags"),
        ({"watch": "inside"}, "watch"),
        ({"mode": "inside"}, "inside"),
        ({"mode": "zero-edit", "watch": "inside"}, "zero-edit"),
    ],
)
def test_a_job_with_flags_is_watched_from_inside_if_its_file_says_so(knobs: dict[str, str], mode: str) -> None:
    assert build(knobs=knobs).env["RUNG_MODE"] == mode


def test_the_job_gets_the_variables_of_the_contract() -> None:
    checkpoint = {"dir": "ck", "pattern": "s_*.pt", "every": 50}
    env = build(checkpoint=checkpoint, resumed="s_5.pt", knobs={"clip": "off"}).env
    assert env["RUNG_JOB"] == "a-1"
    assert env["RUNG_ATTEMPT"] == "2"
    assert env["RUNG_CHECKPOINT"] == "/h/jobs/a-1/ck/s_5.pt"
    assert env["RUNG_CHECKPOINT_DIR"] == "/h/jobs/a-1/ck"
    assert env["RUNG_CHECKPOINT_PATTERN"] == "s_*.pt"
    assert env["RUNG_CHECKPOINT_EVERY"] == "50"
    assert env["RUNG_MODE"] == "flags"
    assert env["RUNG_LOG"] == str(HOME.attempt("a-1", 2).log)
    assert env["PYTHONPATH"] == str(INSIDE)
    knobs = json.loads(env["RUNG_KNOBS"])
    assert tuple(knobs) == KNOB_NAMES and knobs["clip"] is None
    fresh = build().env
    assert fresh["RUNG_CHECKPOINT"] == ""
    assert "RUNG_CHECKPOINT_EVERY" not in fresh and "RUNG_SAVE_SIGNAL" not in fresh


def test_a_version_of_the_one_file_is_loaded_by_the_name_of_the_file() -> None:
    one_file = {"dir": "ck", "pattern": "ckpt.pt", "keep": 7}
    commands = {"run": "x {lr} --from {checkpoint}", "run_on_resume": "x {lr} --resume {checkpoint}"}
    resumed = build(checkpoint=one_file, resumed="ckpt.rung-step-5.pt", **commands, knobs={"lr": 0.1})
    assert resumed.argv == ("x", "0.1", "--resume", "/h/jobs/a-1/ck/ckpt.pt")
    assert resumed.env["RUNG_CHECKPOINT"] == "/h/jobs/a-1/ck/ckpt.pt"
    assert (resumed.env["RUNG_CHECKPOINT_PATTERN"], resumed.env["RUNG_CHECKPOINT_KEEP"]) == ("ckpt.pt", "7")
    fresh = build(checkpoint=one_file, **commands, knobs={"lr": 0.1})
    assert (fresh.argv, fresh.env["RUNG_CHECKPOINT"]) == (("x", "0.1"), "")
    assert "RUNG_CHECKPOINT_KEEP" not in build().env


def test_the_pythonpath_of_the_job_comes_after_ours() -> None:
    assert build(envs={"PYTHONPATH": "/mine"}).env["PYTHONPATH"] == f"{INSIDE}:/mine"
    assert build({"PYTHONPATH": "/around"}).env["PYTHONPATH"] == f"{INSIDE}:/around"
    assert build({"PYTHONPATH": "/around"}, envs={"PYTHONPATH": "/mine"}).env["PYTHONPATH"] == f"{INSIDE}:/mine"


def test_a_job_cannot_replace_the_variables_of_rung() -> None:
    assert build(envs={"RUNG_ATTEMPT": "99", "RUNG_KNOBS": "{{}}"}).env["RUNG_ATTEMPT"] == "2"


def test_only_listed_variables_are_inherited() -> None:
    passed = ("PATH", "HOME", "LANG", "LC_ALL", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "CONDA_PREFIX", "TMPDIR")
    kept_back = ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "LD_PRELOAD", "XPATH", "PATHX", "RUNG_HOME", "SSH_AUTH_SOCK", "")
    env = build(dict.fromkeys((*passed, *kept_back), "value")).env
    assert all(env[name] == "value" for name in passed)
    assert not set(kept_back) & set(env)


def test_limits_folders_and_secrets_are_as_the_job_file_says() -> None:
    request = build(resources={"cpus": 2, "memory": "1g"}, workdir="sub/../w", secrets=["TOKEN"])
    assert request.limits == {"cpus": 2, "memory": 1 << 30}
    assert str(request.cwd) == "/origin/sub/../w"
    assert request.secrets == ("TOKEN",)
    assert request.paths == HOME.attempt("a-1", 2)
    assert build(checkpoint={"dir": "/abs"}).checkpoint_dir == Path("/abs")
    assert build().limits == {}


# Secrets


def test_a_secret_comes_from_the_environment_or_from_its_file(tmp_path: Path) -> None:
    paths = HomePaths(tmp_path)
    paths.secrets.mkdir()
    (paths.secrets / "B").write_text("from file\n", encoding="utf-8")
    environ = {"A": "a", "C": "c", "RUNG_SECRETS": "X, A"}
    assert find_secrets(("A", "B"), paths, environ) == {"A": "a", "B": "from file"}
    with pytest.raises(EngineError, match=f"secret C is not set: .*{paths.secrets}/C"):
        find_secrets(("C",), paths, {})
    (paths.secrets / "C").write_bytes(b"\xff\xfe hush")
    with pytest.raises(EngineError, match=r"secret C: .* cannot be read as text") as raised:
        find_secrets(("C",), paths, {})
    assert "hush" not in str(raised.value)


def holders(folder: Path, needle: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and needle in path.read_bytes()]


def test_a_secret_reaches_the_job_and_is_not_stored(home: Path, tmp_path: Path, rung: Rung) -> None:
    hush = "hush-9f2c17aa"
    out = tmp_path / "out"
    job = {
        "name": "keeps quiet",
        "run": ["sh", "-c", f'printf "%s %s" "$TOKEN" "$OTHER" > {out}; echo done'],
        "secrets": ["TOKEN"],
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job), encoding="utf-8")
    secret = {"TOKEN": hush, "OTHER": "other-44d1", "RUNG_SECRETS": "TOKEN"}
    reported = rung("launch", tmp_path / "job.yaml", "--dryrun", env=secret)
    assert "TOKEN (secret, its value is not shown)" in reported.out
    ran = rung("launch", "-f", tmp_path / "job.yaml", env=secret)
    assert ran.code == 0, ran
    assert out.read_text() == f"{hush} "
    seen = "".join(rung(*words).out for words in (["history", "--json", "keeps quiet"], ["logs", "keeps quiet"]))
    assert "done" in seen
    for text in (reported.out, reported.err, ran.out, ran.err, seen):
        assert hush not in text
    assert holders(home, b"TOKEN")  # its name is kept
    assert holders(home, hush.encode()) == []
    assert holders(home, b"other-44d1") == []


def test_a_missing_secret_fails_the_job_with_advice(home: Path, tmp_path: Path, rung: Rung) -> None:
    (tmp_path / "job.yaml").write_text("name: a\nrun: 'true'\nsecrets: [NOT_SET_ANYWHERE]\n", encoding="utf-8")
    ran = rung("launch", "-f", tmp_path / "job.yaml")
    assert ran.code == 1
    (row,) = json.loads(rung("queue", "--json").out)
    assert row["state"] == "FAILED"
    assert "secret NOT_SET_ANYWHERE is not set: write it to" in row["reason"]


# Hostile values


def test_hostile_names_paths_and_values_do_no_harm(home: Path, tmp_path: Path, rung: Rung) -> None:
    folder = tmp_path / "a b'c\"d;touch owned"
    folder.mkdir()
    words = ["; touch owned", "$(touch owned)", "`touch owned`", "a\nb", "'", '"', "|", "&& touch owned", "*", ""]
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getcwd(), os.environ['ODD']]))"
    job = {
        "name": "; touch owned $(touch owned) '\" ../../x",
        "run": [sys.executable, "-c", code, *words],
        "envs": {"ODD": "$(touch owned); `touch owned` ' \""},
        "checkpoint": {"dir": "$(touch owned) ;'\""},
    }
    file = folder / "job $(touch owned)'.yaml"
    file.write_text(yaml.safe_dump(job), encoding="utf-8")
    ran = rung("launch", "-f", file)
    assert ran.code == 0, ran
    argv, cwd, odd = json.loads(rung("logs", job["name"]).out)
    assert (argv, cwd, odd) == (words, str(folder), job["envs"]["ODD"])  # type: ignore[index]
    # The server of the wrappers has a folder there until it ends.
    server = re.compile(r"wrappers-[0-9a-f]{16}")
    folders = sorted(path.name for path in home.iterdir() if path.is_dir())
    assert [name for name in folders if not server.fullmatch(name)] == ["jobs"]
    assert [path.name for path in (home / "jobs").iterdir()] == ["touch-owned-touch-owned-x-1"]
    assert not list(tmp_path.rglob("owned"))
    assert not Path("owned").exists()


# Starting


class Flaky(ProcessEngine):
    """An engine that fails the first few times."""

    def __init__(self, failures: int) -> None:
        self.failures, self.started = failures, 0

    def start(self, request: Request, secrets: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise EngineError("short of processes")
        self.started += 1


def test_a_start_that_fails_for_a_moment_is_retried() -> None:
    slept: list[float] = []
    engine = Flaky(2)
    start_attempt(engine, build(), {}, slept.append)
    assert (engine.started, len(slept)) == (1, 2)
    assert all(0 <= seconds <= 5 for seconds in slept)


def test_a_start_that_always_fails_is_reported() -> None:
    slept: list[float] = []
    with pytest.raises(EngineError, match="short of processes"):
        start_attempt(Flaky(99), build(), {}, slept.append)
    assert len(slept) == 2


def test_the_job_file_may_set_its_own_path() -> None:
    assert build({"PATH": "/usr/bin"}).env["PATH"] == "/usr/bin"
    assert build({"PATH": "/usr/bin"}, envs={"PATH": "/mine"}).env["PATH"] == "/mine"


# Hydra, switches, files and frameworks


@pytest.mark.parametrize(
    ("word", "values", "filled"),
    [
        ("optimizer.lr={lr}", {"lr": "1e-05"}, "optimizer.lr=1e-5"),
        ("--lr={lr}", {"lr": "1e-05"}, "--lr=1e-05"),
        ("+trainer.precision={precision}", {"precision": "16-mixed"}, "+trainer.precision=16-mixed"),
        ("ckpt={checkpoint}", {"checkpoint": "/a/step_5.pt"}, "ckpt=/a/step_5.pt"),
        ("ckpt={checkpoint}", {"checkpoint": "/a/lr=1,b/it's"}, "ckpt='/a/lr=1,b/it\\'s'"),
        ("ckpt={checkpoint}/x", {"checkpoint": "/a b"}, "ckpt='/a b/x'"),
        ("opts=[{lr},{checkpoint}]", {"lr": "1e-05", "checkpoint": "a,b"}, "opts=[1e-5,'a,b']"),
        ("ckpt={checkpoint}", {"checkpoint": "a,b\\"}, "ckpt='a,b\\\\'"),
    ],
)
def test_a_hydra_override_is_written_as_hydra_reads_it(word: str, values: dict[str, str], filled: str) -> None:
    assert fill_command((word,), {**NOTHING, **values}) == (filled,)


@pytest.mark.parametrize(("precision", "fp16", "bf16"), [("amp_fp16", "true", "false"), ("fp32", "false", "false")])
def test_switches_set_a_precision(precision: str, fp16: str, bf16: str) -> None:
    request = build(run="x --fp16 {fp16} --bf16 {bf16}", knobs={"precision": precision})
    assert request.argv == ("x", "--fp16", fp16, "--bf16", bf16)


def test_a_value_in_a_file_keeps_its_type_and_a_missing_value_changes_nothing() -> None:
    keys = {"lr": ["a", "b.c"], "precision": "amp", "clip": "clip", "checkpoint": "resume", "fp16": "fp16.enabled"}
    knobs = {"lr": 1e-5, "precision_text": {"amp_fp16": True}, "files": {"c.yaml": keys}}
    request = build(knobs=knobs, run="x {precision}")
    (edit,) = request.edits
    assert edit.values == {"a": 1e-5, "b.c": 1e-5, "amp": True, "fp16.enabled": True}
    assert request.argv == ("x", "true")
    assert request.cwd == Path("/h/jobs/a-1/attempts/2/work") and request.source == Path("/origin")
    assert build(knobs=knobs, resumed="s.pt").edits[0].values["resume"] == "/h/jobs/a-1/checkpoints/s.pt"


def test_the_precision_has_the_name_of_the_framework() -> None:
    knobs = {"framework": "lightning", "precision": "native_fp16"}
    assert build(run="x precision={precision}", knobs=knobs).argv == ("x", "precision=16-true")
