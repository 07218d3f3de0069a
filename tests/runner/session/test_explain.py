"""Tests `rung explain` on logs of any size."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.speed import write_log

RUNG = Path(sys.executable).parent / "rung"
GIGABYTE = 1_000_000_000
# The documented limit: less than 200 MB, whatever the size of the log.
MEMORY = 200_000_000


def limited() -> None:
    # RLIMIT_AS would count what the interpreter merely reserves.
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def explain(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [RUNG, "explain", str(path), "--json", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=limited)


@pytest.fixture(scope="module")
def large_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log of a gigabyte: a healthy training over and over, and an error in its last line."""
    path = tmp_path_factory.mktemp("log") / "large.log"
    write_log(path, 5_000_000)
    block = path.read_bytes()
    with path.open("wb") as file:
        for _ in range(GIGABYTE // len(block)):
            file.write(block)
        file.write(b"\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    return path


def test_a_gigabyte_is_searched_in_bounded_memory_and_shows_progress(large_log: Path) -> None:
    done = explain(large_log, "--quick")
    # Most lines are left out, so no step is known.
    assert [(fault["fault"], fault["step"]) for fault in json.loads(done.stdout)] == [("oom", None)]
    progress = done.stderr.splitlines()
    assert len(progress) == 10
    assert progress[-1] == f"read {large_log.stat().st_size >> 20} of {large_log.stat().st_size >> 20} MiB"


def test_a_long_log_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_log(path, 20_000_000)
    with path.open("ab") as file:
        file.write(b"\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    done = explain(path)
    (fault,) = [fault for fault in json.loads(done.stdout) if fault["first_cause"]]
    assert fault["fault"] == "oom"
    assert fault["step"] is not None


def test_a_short_log_is_explained_without_progress(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"step 1 loss 2.5\nRuntimeError: CUDA out of memory\n")
    assert explain(path).stderr == ""


def test_the_log_of_these_tests_is_healthy(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_log(path, 3_000_000)
    assert json.loads(explain(path).stdout) == []
