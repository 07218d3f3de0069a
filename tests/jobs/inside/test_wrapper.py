"""Tests the wrapper alone: one claim, complete files, and a record of every end."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rung.runner.files.inside import WRAPPER
from tests import pace

Wait = Callable[..., Any]


def request(folder: Path, *argv: str, limits: dict[str, int] | None = None) -> None:
    folder.mkdir(exist_ok=True)
    asked = {"argv": argv, "cwd": str(folder), "limits": limits or {}}
    (folder / "request.json").write_text(json.dumps(asked), encoding="utf-8")


def wrap(folder: Path, room: int | None = None) -> subprocess.Popen[bytes]:
    """Start a wrapper; with `room`, none of its files can have more bytes."""
    limit = None if room is None else partial(resource.setrlimit, resource.RLIMIT_FSIZE, (room, room))
    command = [sys.executable, "-I", str(WRAPPER), str(folder)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, preexec_fn=limit)


def finished(process: subprocess.Popen[bytes]) -> int:
    return pace.wait(process, 30)


def record(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    return found


def test_only_one_of_three_wrappers_runs_the_command(tmp_path: Path, wait_until: Wait) -> None:
    for number in range(5):
        folder = tmp_path / str(number)
        request(folder, "sh", "-c", "echo ran >> ran")
        wrappers = [wrap(folder) for _ in range(3)]
        assert [finished(process) for process in wrappers] == [0, 0, 0]
        wait_until((folder / "done.json").exists)
        assert (folder / "ran").read_text() == "ran\n"
        assert sorted(path.name for path in folder.iterdir()) == [
            "claim.json", "done.json", "log", "ran", "request.json", "running.json",
        ]  # fmt: skip


def test_claim_json_holds_the_pid_of_the_wrapper_and_running_json_the_process_group(
    tmp_path: Path, wait_until: Wait
) -> None:
    request(tmp_path, "sh", "-c", "echo $$; while [ ! -e go ]; do sleep 0.01; done")
    assert finished(wrap(tmp_path)) == 0
    claim = record(tmp_path, "claim.json")
    wait_until((tmp_path / "running.json").exists)
    group = record(tmp_path, "running.json")["group"]
    wait_until(lambda: (tmp_path / "log").read_text() == f"{group}\n")
    fields = Path(f"/proc/{claim['pid']}/stat").read_text().rpartition(")")[2].split()
    assert int(fields[19]) == claim["started"]
    assert os.getpgid(group) == group
    assert os.getsid(group) == claim["pid"] != os.getsid(0)
    (tmp_path / "go").touch()
    wait_until((tmp_path / "done.json").exists)


def test_the_command_does_not_run_if_a_stop_was_asked_before(tmp_path: Path, wait_until: Wait) -> None:
    request(tmp_path, "touch", "ran")
    (tmp_path / "stop").touch()
    assert finished(wrap(tmp_path)) == 0
    pid = record(tmp_path, "claim.json")["pid"]
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "done.json").exists()


def test_the_wrapper_fails_if_it_cannot_write_its_claim(tmp_path: Path) -> None:
    assert finished(wrap(tmp_path / "nowhere")) != 0


@pytest.mark.parametrize(("room", "left"), [(10, ["request.json"]), (200, ["claim.json", "request.json"])])
def test_a_wrapper_without_room_for_its_files_leaves_no_draft(
    tmp_path: Path, wait_until: Wait, room: int, left: list[str]
) -> None:
    request(tmp_path, "true")
    # The claim has 110 to 120 bytes, the reserved record 256.
    code = finished(wrap(tmp_path, room))
    assert (code == 0) == ("claim.json" in left)
    if code == 0:
        pid = record(tmp_path, "claim.json")["pid"]
        wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_a_command_that_cannot_start_on_a_full_disk_leaves_no_record_and_no_draft(
    tmp_path: Path, wait_until: Wait
) -> None:
    request(tmp_path, "no-such-command")
    (tmp_path / "log").write_bytes(b"." * 300)
    assert finished(wrap(tmp_path, room=300)) == 0
    pid = record(tmp_path, "claim.json")["pid"]
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["claim.json", "log", "request.json", "running.json"]


def test_the_wrapper_passes_sigterm_to_the_command(tmp_path: Path, wait_until: Wait) -> None:
    request(tmp_path, "sh", "-c", "trap 'echo terminated; exit 9' TERM; echo ready; while :; do sleep 0.01; done")
    assert finished(wrap(tmp_path)) == 0
    wait_until(lambda: (tmp_path / "log").exists() and "ready" in (tmp_path / "log").read_text())
    os.kill(record(tmp_path, "claim.json")["pid"], signal.SIGTERM)
    wait_until((tmp_path / "done.json").exists)
    assert record(tmp_path, "done.json")["exit_code"] == 9
    assert (tmp_path / "log").read_text().endswith("terminated\n")


def test_sighup_does_not_end_the_wrapper(tmp_path: Path, wait_until: Wait) -> None:
    request(tmp_path, "sh", "-c", "echo ready; while [ ! -e go ]; do sleep 0.01; done; exit 6")
    assert finished(wrap(tmp_path)) == 0
    wait_until(lambda: (tmp_path / "log").exists() and "ready" in (tmp_path / "log").read_text())
    os.kill(record(tmp_path, "claim.json")["pid"], signal.SIGHUP)
    (tmp_path / "go").touch()
    wait_until((tmp_path / "done.json").exists)
    assert record(tmp_path, "done.json")["exit_code"] == 6


@pytest.mark.parametrize("limit", [{"memory": 2**70}, {"cpus": 10**6}])
def test_a_limit_that_the_machine_cannot_set_still_gives_an_end_record(
    tmp_path: Path, wait_until: Wait, limit: dict[str, int]
) -> None:
    request(tmp_path, "true", limits=limit)
    assert finished(wrap(tmp_path)) == 0
    wait_until((tmp_path / "done.json").exists)
    assert record(tmp_path, "done.json")["exit_code"] == (127 if "memory" in limit else 0)


def test_the_wrapper_appends_to_the_log_of_an_attempt(tmp_path: Path, wait_until: Wait) -> None:
    request(tmp_path, "echo", "new")
    (tmp_path / "log").write_text("old\n")
    assert finished(wrap(tmp_path)) == 0
    wait_until((tmp_path / "done.json").exists)
    assert (tmp_path / "log").read_text() == "old\nnew\n"
