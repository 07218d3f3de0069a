"""Tests that a Python which zero-edit cannot reach is found from outside, with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rung_inside import hands_watch

from tests.jobs.inside.test_wrapper import finished, record, request

Wait = Callable[..., Any]
INSIDE = str(Path(__file__).parents[3] / "jobs" / "inside")
REACHED = {"RUNG_MODE": "zero-edit", "PYTHONPATH": f"/before:{INSIDE}", "PATH": os.environ["PATH"]}
# As a process looks that has loaded torch; it waits for its end, or for a record in the log.
LOADED = """
import mmap, sys, time
with open(sys.argv[1], "r+b") as file:
    held = mmap.mmap(file.fileno(), 0)
print("loaded", flush=True)
while len(sys.argv) < 3 or "rung| hands none" not in open(sys.argv[2]).read():
    time.sleep(0.05)
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "libtorch_cpu.so"
    path.write_bytes(b"x")
    return path


@pytest.fixture
def started() -> Iterator[Callable[..., int]]:
    running: list[subprocess.Popen[str]] = []

    def start(*argv: str, env: dict[str, str]) -> int:
        running.append(subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True))
        assert running[-1].stdout is not None and running[-1].stdout.readline() == "loaded\n"
        return running[-1].pid

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_the_reason_is_read_from_the_process(started: Callable[..., int], library: Path, tmp_path: Path) -> None:
    def why(*flags: str, env: dict[str, str] = REACHED, file: Path = library) -> str:
        return hands_watch.why_none(started(sys.executable, *flags, "-c", LOADED, str(file), env=env), INSIDE)

    other = tmp_path / "libother.so"
    other.write_bytes(b"x")
    assert why() == ""
    assert why("-I") == "why=isolated flag=-I"
    assert why(env={"PATH": os.environ["PATH"]}) == "why=environment_cleared"
    assert why(env={**REACHED, "PYTHONPATH": "/elsewhere"}) == "why=environment_cleared"
    assert why("-I", file=other) == "", "a process without torch is left alone"
    assert hands_watch.why_none(2**22 + 1, INSIDE) == "", "a process that is gone"


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("python train.py -I", ""),
        ("python -u -m train -E", ""),
        ("python -c print(1) -S", ""),
        ("python -W error -X dev -I train.py", "I"),
        ("python -Wignore -uE train.py", "E"),
        ("python -XImportant train.py", ""),
        ("python -S", "S"),
        ("python", ""),
    ],
)
def test_only_options_before_the_script_isolate_python(command: str, flag: str) -> None:
    assert hands_watch.isolating_flag([*(each.encode() for each in command.split()), b""]) == flag


def test_the_wrapper_writes_the_reason_to_the_log_while_the_job_runs(
    tmp_path: Path, library: Path, wait_until: Wait
) -> None:
    folder = tmp_path / "attempt"
    request(folder, sys.executable, "-E", "-c", LOADED, str(library), str(folder / "log"))
    wrapper = [sys.executable, "-I", hands_watch.__file__.replace("hands_watch", "wrapper"), str(folder)]
    assert finished(subprocess.Popen(wrapper, env={**REACHED, "PYTHONPATH": INSIDE})) == 0
    wait_until((folder / "done.json").exists)
    assert (folder / "log").read_text() == "loaded\nrung| hands none why=isolated flag=-E\n"
    session = str(record(folder, "claim.json")["pid"])
    wait_until(lambda: not hands_watch.processes(session))
