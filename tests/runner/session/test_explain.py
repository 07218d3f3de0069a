"""`rung explain` on logs of any size, as a person calls it."""

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
# The bound that is promised: less than 200 MB, whatever the log's size.
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


def test_a_gigabyte_is_looked_through_in_bounded_memory_and_tells_how_far_it_is(large_log: Path) -> None:
    done = explain(large_log, "--quick")
    assert [fault["fault"] for fault in json.loads(done.stdout)] == ["oom"]
    told = done.stderr.splitlines()
    assert len(told) == 10
    assert told[-1] == f"read {large_log.stat().st_size >> 20} of {large_log.stat().st_size >> 20} MiB"


def test_a_long_log_is_taken_in_whole_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_log(path, 20_000_000)
    with path.open("ab") as file:
        file.write(b"\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    done = explain(path)
    (fault,) = [fault for fault in json.loads(done.stdout) if fault["first_cause"]]
    assert fault["fault"] == "oom"
    assert fault["step"] is not None


def test_a_short_log_is_explained_without_a_word_of_progress(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"step 1 loss 2.5\nRuntimeError: CUDA out of memory\n")
    assert explain(path).stderr == ""


def test_the_log_that_is_measured_with_is_a_healthy_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_log(path, 3_000_000)
    assert json.loads(explain(path).stdout) == []
