"""Tests that an attempt of the process engine is started once, outlives its controller, and ends completely."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.engine import EndedBy
from rung.jobs.model.errors import EngineError
from rung.runner.engines.process import ProcessEngine
from rung.runner.seams.engine import Presence, Request
from tests import pace
from tests.support.process_attempts import ENV, Attempts, gone

# An attempt runs once


def test_a_second_start_of_the_same_attempt_does_nothing(attempts: Attempts, tmp_path: Path) -> None:
    request = attempts.sh("echo ran >> ran; while [ ! -e go ]; do sleep 0.01; done")
    claim = attempts.claim(request)
    attempts.engine.start(request, {})
    ProcessEngine().start(request, {})
    (tmp_path / "go").touch()
    attempts.end(request)
    attempts.engine.start(request, {})  # also after its end
    assert attempts.end(request).exit_code == 0
    assert attempts.claim(request) == claim
    assert (tmp_path / "ran").read_text() == "ran\n"


STARTER = """
import json, os, sys
from pathlib import Path
from rung.jobs.model.paths import AttemptPaths
from rung.runner.seams.engine import Request
from rung.runner.engines.process import ProcessEngine
folder = Path(sys.argv[1])
request = Request("a-1", 1, ("sh", "-c", sys.argv[2]), folder, {"PATH": os.environ["PATH"]},
                  AttemptPaths(Path(sys.argv[3])), folder / "checkpoints")
sys.stdin.readline()
ProcessEngine().start(request, {})
print("started", flush=True)
sys.stdin.readline()
"""


def starter(request: Request, script: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", STARTER, str(request.cwd), script, str(request.paths.folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def send_line(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_when_many_start_an_attempt_at_once_it_runs_once(attempts: Attempts, tmp_path: Path) -> None:
    request = attempts.request("sh")
    starters = [starter(request, "echo ran >> ran; sleep 0.2") for _ in range(4)]
    for process in starters:
        send_line(process)
    for process in starters:
        assert pace.communicate(process, "\n", usual=60)[0] == "started\n"
    assert attempts.end(request).exit_code == 0
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_an_attempt_outlives_its_killed_starter_and_a_new_engine_finds_it(attempts: Attempts, tmp_path: Path) -> None:
    request = attempts.request("sh")
    process = starter(request, "echo begun; while [ ! -e go ]; do sleep 0.01; done; echo over; exit 3")
    send_line(process)
    assert process.stdout is not None and process.stdout.readline() == "started\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    fresh = ProcessEngine()
    assert fresh.observe(request.paths).presence is Presence.RUNNING
    attempts.wait_for_log(request, "begun")
    (tmp_path / "go").touch()
    assert attempts.end(request).exit_code == 3
    assert attempts.log(request) == "begun\nover\n"


def test_the_exit_code_is_kept_when_an_attempt_ends_without_a_controller(attempts: Attempts, tmp_path: Path) -> None:
    request = attempts.request("sh")
    process = starter(request, "exit 5")
    send_line(process)
    pace.communicate(process, "\n", usual=60)
    assert attempts.end(request).exit_code == 5


# A pid alone does not identify an attempt


@pytest.mark.parametrize("change", [{"started": 1}, {"boot": "another boot"}, {"pid": 2**22 - 1}])
def test_another_process_with_the_same_pid_is_not_the_attempt(attempts: Attempts, change: dict[str, Any]) -> None:
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        request = attempts.request("sh")
        fields = Path(f"/proc/{bystander.pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        claim = {"pid": bystander.pid, "started": int(fields[19]), "boot": boot, "claimed_at": 1.0}
        request.paths.folder.mkdir(parents=True)
        request.paths.running.write_text(json.dumps({"group": bystander.pid}))
        request.paths.claim.write_text(json.dumps(claim))
        assert attempts.engine.observe(request.paths).presence is Presence.RUNNING
        request.paths.claim.write_text(json.dumps({**claim, **change}))
        lost = attempts.engine.observe(request.paths)
        assert lost.presence is Presence.LOST
        assert lost.ended_by is (EndedBy.NODE_FAILURE if "boot" in change else None)
        attempts.engine.stop(request.paths, force=True)
        assert attempts.engine.observe(request.paths).presence is Presence.LOST
        assert bystander.poll() is None, "a foreign process was killed"
    finally:
        bystander.kill()
        bystander.wait()


def test_a_killed_wrapper_is_lost_and_its_command_dies_with_it(attempts: Attempts) -> None:
    request = attempts.sh("sleep 60 & echo $! $$; wait")
    attempts.wait(lambda: attempts.log(request).endswith("\n"))
    inner, outer = map(int, attempts.log(request).split())
    os.kill(attempts.claim(request)["pid"], signal.SIGKILL)
    end = attempts.end(request)
    assert (end.presence, end.exit_code) == (Presence.LOST, None)
    assert "no completion record" in end.detail
    attempts.wait(lambda: gone(outer) and gone(inner))


def test_a_wrapper_that_is_a_zombie_is_lost(attempts: Attempts) -> None:
    child = subprocess.Popen(["sleep", "60"])
    request = attempts.request("sh")
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    claim = {"pid": child.pid, "started": int(fields[19]), "boot": boot, "claimed_at": 1.0}
    request.paths.folder.mkdir(parents=True)
    request.paths.claim.write_text(json.dumps(claim))
    child.send_signal(signal.SIGKILL)
    attempts.wait(lambda: gone(child.pid))
    assert Path(f"/proc/{child.pid}").exists()
    assert attempts.engine.observe(request.paths).presence is Presence.LOST
    child.wait()


def test_a_claim_that_cannot_be_read_is_an_error_and_no_new_start(attempts: Attempts) -> None:
    request = attempts.request("sh")
    request.paths.folder.mkdir(parents=True)
    request.paths.claim.write_text("{")
    with pytest.raises(EngineError, match=r"claim\.json: cannot be read"):
        attempts.engine.observe(request.paths)
    request.paths.claim.write_text("{}")  # so that the fixture has nothing to end
    request.paths.claim.unlink()


# Stopping


def test_term_ends_the_whole_group_with_grandchildren(attempts: Attempts) -> None:
    request = attempts.sh("sh -c 'sleep 60 & echo $!; wait' & echo $!; wait")
    attempts.wait(lambda: attempts.log(request).count("\n") == 2)
    attempts.engine.stop(request.paths, force=False)
    end = attempts.end(request)
    assert (end.presence, end.signal) == (Presence.ENDED, signal.SIGTERM)
    for pid in attempts.log(request).split():
        attempts.wait(lambda pid=pid: gone(int(pid)))


def test_a_command_can_end_with_exit_code_0_on_term(attempts: Attempts) -> None:
    request = attempts.sh("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    attempts.wait_for_log(request, "ready")
    attempts.engine.stop(request.paths, force=False)
    attempts.engine.stop(request.paths, force=False)  # the second call sends no second signal
    end = attempts.end(request)
    assert (end.exit_code, end.signal) == (0, None)
    assert attempts.log(request).endswith("saved\n")  # the shell may print before it that its sleep was terminated


def test_kill_ends_a_command_that_ignores_term_with_its_grandchildren(attempts: Attempts) -> None:
    request = attempts.sh("trap '' TERM; sh -c 'sleep 60 & echo $!; wait' & echo $!; while :; do sleep 0.01; done")
    attempts.wait(lambda: attempts.log(request).count("\n") == 2)
    attempts.engine.stop(request.paths, force=False)
    assert attempts.engine.observe(request.paths).presence is Presence.RUNNING
    attempts.engine.stop(request.paths, force=True)
    end = attempts.end(request)
    assert (end.presence, end.signal) == (Presence.ENDED, signal.SIGKILL)
    for pid in attempts.log(request).split():
        attempts.wait(lambda pid=pid: gone(int(pid)))


def test_processes_that_a_finished_command_left_in_its_group_are_ended(attempts: Attempts) -> None:
    request = attempts.sh("sleep 60 & echo $!")
    assert attempts.end(request).exit_code == 0
    attempts.wait(lambda: gone(int(attempts.log(request))))


def test_a_worker_that_left_its_group_is_ended_with_the_attempt(attempts: Attempts) -> None:
    request = attempts.sh("setsid sleep 60 & echo $!; exit 3")
    assert attempts.end(request).exit_code == 3
    attempts.wait(lambda: gone(int(attempts.log(request))))


def test_a_worker_that_left_its_group_does_not_outlive_a_killed_wrapper(attempts: Attempts) -> None:
    request = attempts.sh("setsid sleep 60 & echo $!; sleep 60")
    attempts.wait(lambda: attempts.log(request).endswith("\n"))
    os.kill(attempts.claim(request)["pid"], signal.SIGKILL)
    assert attempts.end(request).presence is Presence.LOST
    attempts.wait(lambda: gone(int(attempts.log(request))))


def test_a_foreign_process_in_the_same_folder_is_left_alone(attempts: Attempts, tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"], env={**ENV, "RUNG_FOLDER": str(attempts.paths(10).folder)})
    try:
        attempts.end(attempts.sh("exit 0"))
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_an_attempt_stopped_before_its_start_never_runs(attempts: Attempts, tmp_path: Path) -> None:
    request = attempts.request("sh", "-c", "touch ran")
    attempts.engine.stop(request.paths, force=False)
    assert attempts.engine.observe(request.paths).presence is Presence.ABSENT
    attempts.engine.start(request, {})
    end = attempts.end(request)
    assert (end.presence, end.exit_code, end.signal) == (Presence.ENDED, None, signal.SIGTERM)
    assert "before the command ran" in end.detail
    assert not (tmp_path / "ran").exists()


def test_stopping_an_ended_attempt_changes_nothing(attempts: Attempts) -> None:
    request = attempts.sh("exit 4")
    before = attempts.end(request)
    attempts.engine.stop(request.paths, force=True)
    assert attempts.engine.observe(request.paths) == before


def test_no_zombie_is_left(attempts: Attempts) -> None:
    request = attempts.sh("sleep 60 & exit 0")
    attempts.end(request)
    pid = attempts.claim(request)["pid"]
    attempts.wait(lambda: not Path(f"/proc/{pid}").exists())
    mine = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    assert [child for child in mine if gone(int(child))] == []
