"""Tests the wrapper of a batch job in several shells: it runs a command once, passes signals on and records the end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rung.jobs.model.paths import HostPaths
from rung.jobs.site.settings import Site, Start
from rung.runner.engines.slurm.batch import UNPACK, WITH_INSIDE, environment
from rung.runner.engines.slurm.site_paths import SitePaths
from rung.runner.files.inside import INSIDE
from tests import pace

Wait = Callable[..., Any]
SHELLS = [["dash"], ["busybox", "ash"], ["bash", "--posix"]]
SAVE = 45
every_shell = pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell[0])], ids=" ".join)
# Ends with 85 at the signal to save; the shell beside it has no handler for that, and must live.
SAVES = """\
import signal, sys, time
signal.signal(45, lambda *_: sys.exit(85))
print("ready", flush=True)
time.sleep(600)
"""


class Batch:
    """One batch job outside of a cluster."""

    def __init__(self, folder: Path, shell: list[str]) -> None:
        self.folder, self.record, self.shell = folder, folder / "record", shell
        self.record.mkdir(parents=True)
        (self.record / "environment").write_text("export WORD='two words'\n")

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        script = [*self.shell, str(INSIDE / "batched.sh"), str(self.record), str(self.folder), str(SAVE)]
        env = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "turing"}
        with (self.record / "log").open("ab") as log:
            return subprocess.Popen([*script, *command], env=env, stdout=log, stderr=log)

    def log(self) -> str:
        return (self.record / "log").read_text()

    def done(self) -> dict[str, Any]:
        return json.loads((self.record / "done.json").read_text())


@pytest.fixture
def batch(tmp_path: Path, shell: list[str]) -> Batch:
    return Batch(tmp_path, shell)


@every_shell
def test_a_command_runs_once_with_its_secrets_and_its_end_is_recorded(batch: Batch) -> None:
    (batch.record / "secrets").mkdir()
    (batch.record / "secrets" / "TOKEN").write_text("line 1\nline 2\n")
    started = batch.start("sh", "-c", 'printf "%s|" "$WORD" "$TOKEN"; pwd; exit 3')
    assert pace.wait(started, 30) == 3
    assert batch.log() == f"two words|line 1\nline 2\n|{batch.folder}\n"
    done = batch.done()
    assert (done["exit_code"], done["told"], done["node"]) == (3, False, "turing")
    assert done["began_at"] <= done["ended_at"]
    assert not (batch.record / "secrets").exists()
    assert (batch.record / "began").read_text().split()[0::2] == ["7", "turing"]
    again = batch.start("sh", "-c", "echo again")
    assert pace.wait(again, 30) == 125
    assert batch.log().endswith("rung: this attempt has been started before; it runs once\n")
    assert batch.done() == done


@every_shell
def test_python_writes_nothing_into_the_folder_of_our_code(shell: list[str], tmp_path: Path) -> None:
    """Several jobs share it, and what was changed there is removed and sent anew."""
    (tmp_path / "inside").mkdir()
    for name in ("sitecustomize", "ours"):
        (tmp_path / "inside" / f"{name}.py").write_text("")
    command = [sys.executable, "-c", "import ours, sys; print(ours.__file__, sys.path[2])"]
    env = {**os.environ, "PYTHONPATH": "/theirs"}
    words = [*shell, "-c", WITH_INSIDE, "rung", str(tmp_path / "inside"), *command]
    printed = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
    assert printed.split() == [str(tmp_path / "inside" / "ours.py"), "/theirs"]
    assert sorted(path.name for path in (tmp_path / "inside").iterdir()) == ["ours.py", "sitecustomize.py"]


@every_shell
def test_a_container_tool_sees_no_variable_and_no_secret_of_the_job(batch: Batch) -> None:
    word, token = "it's $(exit 9) `x` \\", "line 1\n'line' \"2\"\n"
    request = SimpleNamespace(env={"CONTAINER_HOST": word})
    paths = SitePaths(HostPaths("/home", "abc"), "/inside", "a-1", 1, 1)
    (batch.record / "environment").write_bytes(environment(Site(start=Start.PODMAN), request, paths))  # type: ignore[arg-type]
    (batch.record / "secrets").mkdir()
    (batch.record / "secrets" / "TOKEN").write_text(token)
    tool = 'printf "%s|" "${CONTAINER_HOST-none}" "${TOKEN-none}"; exec sh -c "$0"'
    inside = UNPACK + 'printf "%s|" "$CONTAINER_HOST" "$TOKEN" "${RUNG_ENVIRONMENT-none}"'
    started = batch.start("sh", "-c", tool, inside)
    assert pace.wait(started, 30) == 0
    assert batch.log() == f"none|none|{word}|{token}|none|"


@every_shell
def test_term_ends_the_command_with_all_its_processes(batch: Batch, wait_until: Wait) -> None:
    started = batch.start("sh", "-c", "trap 'exit 9' TERM; sleep 600 & echo ready $!; wait")
    wait_until(lambda: "ready" in batch.log())
    started.send_signal(signal.SIGTERM)
    assert pace.wait(started, 30) == 9
    child = int(batch.log().split()[1])
    wait_until(lambda: not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text())
    assert batch.done()["exit_code"] == 9


@every_shell
def test_the_gpus_of_the_job_are_listed_by_the_driver_of_the_node(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = batch.folder / "bin" / "nvidia-smi"
    driver.parent.mkdir()
    driver.write_text('#!/bin/sh\n[ "$1 $2" = "-i 0,1" ] && echo "0, GPU-a, 40960, 580.95.05, 8.0, NVIDIA A100"\n')
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", f"{driver.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert pace.wait(batch.start("true"), 30) == 0
    assert (batch.record / "gpus").read_text() == "0, GPU-a, 40960, 580.95.05, 8.0, NVIDIA A100\n"


@every_shell
def test_the_shell_adds_no_word_of_its_own_about_a_killed_command(batch: Batch) -> None:
    started = batch.start("sh", "-c", "echo out; echo wrong >&2; kill -9 $$")
    assert pace.wait(started, 30) == 137
    assert (batch.done()["exit_code"], batch.log()) == (137, "out\nwrong\n")


@every_shell
def test_only_a_process_that_can_save_hears_that_its_time_is_nearly_up(batch: Batch, wait_until: Wait) -> None:
    (batch.folder / "saves.py").write_text(SAVES)
    started = batch.start("sh", "-c", f"{sys.executable} saves.py; echo code $?; exit 85")
    wait_until(lambda: "ready" in batch.log())
    started.send_signal(signal.SIGUSR2)
    assert pace.wait(started, 60) == 85
    assert "code 85" in batch.log()
    assert (batch.done()["exit_code"], batch.done()["told"]) == (85, True)


@every_shell
def test_a_command_without_a_handler_goes_on_when_its_time_is_nearly_up(batch: Batch, wait_until: Wait) -> None:
    os.mkfifo(batch.folder / "go")
    started = batch.start("sh", "-c", "echo ready; read -r word <go; exit 4")
    wait_until(lambda: "ready" in batch.log())
    started.send_signal(signal.SIGUSR2)
    (batch.folder / "go").write_text("now\n")
    assert pace.wait(started, 30) == 4
    assert (batch.done()["exit_code"], batch.done()["told"]) == (4, True)


def test_a_command_that_ends_just_after_a_signal_keeps_its_exit_code(tmp_path: Path, wait_until: Wait) -> None:
    # bash loses the code in about one of fifteen such runs, if it waits for the command itself.
    for number in range(40):
        run = Batch(tmp_path / str(number), ["bash", "--posix"])
        os.mkfifo(run.folder / "go")
        started = run.start("sh", "-c", "echo ready; read -r word <go; exit 4")
        wait_until(lambda run=run: "ready" in run.log())
        started.send_signal(signal.SIGUSR2)
        (run.folder / "go").write_text("now\n")
        assert pace.wait(started, 30) == run.done()["exit_code"] == 4


@every_shell
def test_the_question_for_stacks_harms_no_process_without_an_answer(batch: Batch, wait_until: Wait) -> None:
    os.mkfifo(batch.folder / "go")
    started = batch.start("sh", "-c", "echo ready; read -r word <go; exit 4")
    wait_until(lambda: "ready" in batch.log())
    started.send_signal(signal.SIGUSR1)
    wait_until(lambda: "no sign of life" in batch.log())
    (batch.folder / "go").write_text("now\n")
    assert pace.wait(started, 30) == 4
    assert (batch.done()["exit_code"], batch.done()["told"]) == (4, False)


@every_shell
def test_a_folder_that_is_not_on_the_node_is_said(batch: Batch) -> None:
    batch.folder = batch.folder / "nowhere"
    assert pace.wait(batch.start("true"), 30) == 125
    assert "there is no folder" in batch.log() and batch.done()["exit_code"] == 125
