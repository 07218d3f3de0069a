"""Tests that a process which hangs writes its stacks into the log when it is asked, and that no other one is harmed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rung.runner.files.inside import INSIDE, WRAPPER
from tests import pace

Wait = Callable[..., Any]
SHELLS = [["dash"], ["busybox", "ash"], ["bash", "--posix"]]
HANGS = """\
import os, sys, threading
def wait_for_ever():
    print("hangs", os.getpid(), flush=True)
    threading.Event().wait()
wait_for_ever()
"""


def environment(log: Path, mode: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(INSIDE), "RUNG_MODE": mode, "RUNG_LOG": str(log)}


def pids(log: Path) -> list[int]:
    return [int(pid) for pid in re.findall(r"^hangs (\d+)$", log.read_text() if log.exists() else "", re.MULTILINE)]


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("mode", ["zero-edit", "inside", "watch"])
def test_a_process_that_hangs_shows_its_stack_and_one_without_a_handler_lives(
    tmp_path: Path, wait_until: Wait, mode: str
) -> None:
    folder, log = tmp_path / "attempt", tmp_path / "attempt" / "log"
    folder.mkdir()
    (folder / "hangs.py").write_text(HANGS)
    # The second Python is one that Rung's code does not reach.
    command = f"{sys.executable} hangs.py & {sys.executable} -I hangs.py & wait"
    asked = {"argv": ["sh", "-c", command], "cwd": str(folder), "limits": {}}
    (folder / "request.json").write_text(json.dumps(asked))
    subprocess.run([sys.executable, "-I", WRAPPER, folder], env=environment(log, mode), check=True, timeout=60)
    wait_until(lambda: len(pids(log)) == 2)
    subprocess.run([sys.executable, "-I", WRAPPER, "--stacks", folder], check=True, timeout=60)
    wait_until(lambda: 'hangs.py", line 5 in <module>' in log.read_text())
    text = log.read_text()
    assert text.count(" in wait_for_ever") == 1 and "most recent call first" in text
    assert text.index("rung: no sign of life; the stacks") < text.index(" in wait_for_ever")
    assert all(is_alive(pid) for pid in pids(log)) and not (folder / "done.json").exists()
    os.killpg(json.loads((folder / "running.json").read_text())["group"], signal.SIGKILL)
    wait_until((folder / "done.json").exists)


def start_container(folder: Path, shell: list[str], command: str) -> subprocess.Popen[bytes]:
    """Start the first process of a container outside of one: its folders, and the processes it sees, are the test's."""
    (folder / "record").mkdir()
    (folder / "proc").mkdir()
    text = (INSIDE / "contained.sh").read_text()
    for old, new in (("/rung/", f"{folder}/"), ("/proc/", f"{folder}/proc/"), ("[ $$ = 1 ]", "true")):
        assert old in text
        text = text.replace(old, new)
    (folder / "contained.sh").write_text(text.replace("kill -TERM -1", ":"))
    with (folder / "log").open("wb") as output:
        return subprocess.Popen(
            [*shell, folder / "contained.sh", "sh", "-c", command],
            cwd=folder,
            env=environment(folder / "log", "inside") | {"PYTHONPATH": str(INSIDE)},
            stdout=output,
        )


every_shell = pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell[0])], ids=" ".join)


@every_shell
def test_the_first_process_of_a_container_passes_the_question_on(
    tmp_path: Path, wait_until: Wait, shell: list[str]
) -> None:
    log = tmp_path / "log"
    (tmp_path / "hangs.py").write_text(HANGS)
    container = start_container(tmp_path, shell, f"{sys.executable} hangs.py & {sys.executable} -I hangs.py & wait")
    wait_until(lambda: len(pids(log)) == 2)
    for pid in (*pids(log), container.pid):
        (tmp_path / "proc" / str(pid)).symlink_to(f"/proc/{pid}")
    container.send_signal(signal.SIGUSR1)
    wait_until(lambda: 'hangs.py", line 5 in <module>' in log.read_text())
    assert log.read_text().count(" in wait_for_ever") == 1
    assert container.poll() is None and all(is_alive(pid) for pid in pids(log))
    for pid in pids(log):
        os.kill(pid, signal.SIGKILL)
    assert pace.wait(container, 30) == 0
    assert json.loads((tmp_path / "record" / "done.json").read_text())["exit_code"] == 0


@every_shell
@pytest.mark.parametrize("code", [0, 5])
def test_a_command_that_ends_while_the_stacks_are_asked_for_keeps_its_exit_code(
    tmp_path: Path, wait_until: Wait, shell: list[str], code: int
) -> None:
    os.mkfifo(tmp_path / "go")
    container = start_container(tmp_path, shell, f"echo hangs $$; read -r word <go; exit {code}")
    wait_until(lambda: pids(tmp_path / "log"))
    (pid,) = pids(tmp_path / "log")
    # A file that has no end yet: the shell is busy with the question for as long as this test wants.
    (tmp_path / "proc" / "1").mkdir()
    os.mkfifo(tmp_path / "proc" / "1" / "status")
    endless = os.open(tmp_path / "proc" / "1" / "status", os.O_RDWR)
    container.send_signal(signal.SIGUSR1)
    wait_until(lambda: "no sign of life" in (tmp_path / "log").read_text())
    (tmp_path / "go").write_text("now\n")
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or not is_alive(pid))
    os.close(endless)
    assert pace.wait(container, 30) == code
    assert json.loads((tmp_path / "record" / "done.json").read_text())["exit_code"] == code


def test_all_parts_use_the_same_signal() -> None:
    (number,) = re.findall(r"^SIGNAL = (\d+)$", (INSIDE / "rung_inside" / "stacks.py").read_text(), re.MULTILINE)
    assert re.findall(r"^STACKS, .* = (\d+),", WRAPPER.read_text(), re.MULTILINE) == [number]
    assert f"kill -{number} " in (INSIDE / "contained.sh").read_text()
