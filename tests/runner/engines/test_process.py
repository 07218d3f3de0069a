"""Tests the process engine with real processes: started once, found again, ended completely."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Job
from rung.jobs.model.errors import EngineError
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.controller.log_watch import LogWatch, fault_at_end
from rung.runner.engines.process import ProcessEngine
from rung.runner.seams.engine import Observation, Presence, Request
from tests import pace

Wait = Callable[..., Any]
ENV = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"}


class Attempts:
    """Makes requests in one folder, and ends what a test leaves running."""

    def __init__(self, folder: Path, wait: Wait) -> None:
        self.folder, self.wait, self.engine = folder, wait, ProcessEngine()
        self.made: list[Request] = []

    def request(self, *argv: str, **more: Any) -> Request:
        number = len(self.made) + 1
        paths = AttemptPaths(self.folder / "attempts" / str(number))
        request = Request("a-1", number, argv, self.folder, ENV, paths, self.folder / "checkpoints", **more)
        self.made.append(request)
        return request

    def start(self, *argv: str, **more: Any) -> Request:
        request = self.request(*argv, **more)
        self.engine.start(request, {})
        return request

    def sh(self, script: str, **more: Any) -> Request:
        return self.start("sh", "-c", script, **more)

    def python(self, script: str, **more: Any) -> Request:
        return self.start(sys.executable, "-c", script, **more)

    def end(self, request: Request) -> Observation:
        self.wait(lambda: self.engine.observe(request.paths).presence in (Presence.ENDED, Presence.LOST))
        return self.engine.observe(request.paths)

    def log(self, request: Request) -> str:
        return self.engine.read_log(request.paths, 0, 1 << 20).decode()

    def says(self, request: Request, text: str) -> None:
        self.wait(lambda: text in self.log(request))

    def claim(self, request: Request) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(request.paths.claim.read_bytes())
        return found


@pytest.fixture
def attempts(tmp_path: Path, wait_until: Wait) -> Iterator[Attempts]:
    made = Attempts(tmp_path, wait_until)
    yield made
    for request in made.made:
        if made.engine.observe(request.paths).presence is Presence.RUNNING:
            made.wait(request.paths.running.exists)
            made.engine.stop(request.paths, force=True)
            made.end(request)


def gone(pid: int) -> bool:
    """Tell whether a process is no more, or only waits to be taken note of."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


# Starting, observing, ending


def test_an_attempt_never_started_is_absent(attempts: Attempts) -> None:
    assert attempts.engine.observe(attempts.request("true").paths) == Observation(Presence.ABSENT)


def test_absent_to_running_to_ended_with_its_exit_code(attempts: Attempts, tmp_path: Path) -> None:
    request = attempts.sh("echo begun; while [ ! -e go ]; do sleep 0.01; done; echo out; echo err >&2; exit 7")
    seen = attempts.engine.observe(request.paths)
    assert (seen.presence, seen.exit_code) == (Presence.RUNNING, None)
    attempts.says(request, "begun")
    (tmp_path / "go").touch()
    end = attempts.end(request)
    assert (end.presence, end.exit_code, end.signal) == (Presence.ENDED, 7, None)
    assert end.started_at == seen.started_at
    assert end.started_at is not None and end.ended_at is not None and end.started_at <= end.ended_at
    assert attempts.log(request) == "begun\nout\nerr\n"


def test_a_command_killed_from_outside_ended_with_that_signal(attempts: Attempts) -> None:
    end = attempts.end(attempts.sh("kill -SEGV $$"))
    assert (end.presence, end.exit_code, end.signal) == (Presence.ENDED, None, signal.SIGSEGV)


@pytest.mark.parametrize("number", [signal.SIGKILL, 40])
def test_every_signal_makes_a_fault_also_one_without_a_name(attempts: Attempts, number: int) -> None:
    request = attempts.sh(f"echo last words; kill -{int(number)} $$")
    end = attempts.end(request)
    assert end.signal == number
    spec = JobSpec(name="a", run=("x",))
    watch = LogWatch(attempts.engine, request.paths, Job("a-1", spec, JobState.RUNNING, "", 0.0, 0.0, Knobs()))
    watch.read_to_end()
    fault = fault_at_end(end, watch)
    assert fault is not None and fault.kind is FaultKind.INFRA_FAULT
    assert fault.evidence.startswith("killed by SIGKILL" if number == 9 else "killed by signal 40")
    assert "last words" in fault.evidence


@pytest.mark.parametrize(
    ("warning", "code", "kind"),
    [
        ({}, 0, FaultKind.DIVERGENCE),
        ({"stop": False}, 0, None),
        ({"stop": False}, 3, FaultKind.DIVERGENCE),
        ("off", 3, FaultKind.UNKNOWN_EXIT),
    ],
)
def test_a_run_that_ends_diverging_is_no_success_unless_the_warning_is_to_stop_nothing(
    attempts: Attempts, warning: object, code: int, kind: FaultKind | None
) -> None:
    healthy = "for n in $(seq 200); do echo step $n loss 2.$((n % 7)); done"
    losses = f"{healthy}; for n in $(seq 201 240); do echo step $n loss 9; done"
    request = attempts.sh(f"{losses}; exit {code}")
    end = attempts.end(request)
    spec = JobSpec.model_validate({"name": "a", "run": "x", "recovery": {"early_warning": warning}})
    watch = LogWatch(attempts.engine, request.paths, Job("a-1", spec, JobState.RUNNING, "", 0.0, 0.0, Knobs()))
    watch.read_to_end()
    fault = fault_at_end(end, watch)
    assert (fault and fault.kind) == kind


def test_a_command_that_is_not_there_ends_with_127_and_a_line_in_the_log(attempts: Attempts) -> None:
    request = attempts.start("no-such-command", "x")
    end = attempts.end(request)
    assert (end.presence, end.exit_code) == (Presence.ENDED, 127)
    assert attempts.log(request).startswith("rung: cannot start no-such-command: ")


def test_a_working_folder_that_is_gone_ends_with_127_and_a_line_in_the_log(attempts: Attempts, tmp_path: Path) -> None:
    request = attempts.request("true")
    (tmp_path / "attempts" / "1").mkdir(parents=True)
    away = Request(**{**vars(request), "cwd": tmp_path / "nowhere"})
    attempts.engine.start(away, {})
    assert attempts.end(request).exit_code == 127
    assert "nowhere" in attempts.log(request)


def test_arguments_environment_and_folder_reach_the_command_as_they_are(attempts: Attempts, tmp_path: Path) -> None:
    hostile = [
        "a b",
        "; rm -rf /",
        "$(touch owned)",
        "`touch owned`",
        "'\"\\",
        "line\nbreak",
        "*",
        "",
        "-n",
        "é\U0001f600",
    ]
    code = "import sys, os, json; print(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]))"
    request = attempts.request(sys.executable, "-c", code, *hostile)
    request = Request(**{**vars(request), "env": {**ENV, "ODD": "; rm -rf $HOME '\"\n"}})
    attempts.engine.start(request, {"TOKEN": "hush"})
    attempts.end(request)
    argv, cwd, env = json.loads(attempts.log(request))
    assert argv == hostile
    assert cwd == str(tmp_path)
    assert {name: env[name] for name in (*ENV, "ODD", "TOKEN")} == {
        **ENV, "ODD": "; rm -rf $HOME '\"\n", "TOKEN": "hush",
    }  # fmt: skip
    assert not (tmp_path / "owned").exists()


def test_nothing_of_the_controllers_environment_comes_along(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTROLLERS_OWN", "hush")
    request = attempts.sh("env")
    attempts.end(request)
    assert "PATH=" in attempts.log(request)
    assert "CONTROLLERS_OWN" not in attempts.log(request)


def test_a_secret_no_environment_can_hold_is_an_error_and_starts_nothing(attempts: Attempts) -> None:
    request = attempts.request("true")
    with pytest.raises(EngineError, match="could not be started"):
        attempts.engine.start(request, {"TOKEN": "a\0b"})
    assert attempts.engine.observe(request.paths).presence is Presence.ABSENT


def test_a_folder_that_cannot_be_made_is_an_error(attempts: Attempts, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(EngineError, match=r"could not be started: .*File exists"):
        attempts.sh("true")


# Once, whoever starts it


def test_a_second_start_of_the_same_attempt_does_nothing(attempts: Attempts, tmp_path: Path) -> None:
    request = attempts.sh("echo ran >> ran; while [ ! -e go ]; do sleep 0.01; done")
    claim = attempts.claim(request)
    attempts.engine.start(request, {})
    ProcessEngine().start(request, {})
    (tmp_path / "go").touch()
    attempts.end(request)
    attempts.engine.start(request, {})  # also when it is over
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
                  AttemptPaths(folder / "attempts" / "1"), folder / "checkpoints")
sys.stdin.readline()
ProcessEngine().start(request, {})
print("started", flush=True)
sys.stdin.readline()
"""


def starter(folder: Path, script: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", STARTER, str(folder), script]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_of_many_starting_at_once_exactly_one_runs_it(attempts: Attempts, tmp_path: Path) -> None:
    request = attempts.request("sh")
    starters = [starter(tmp_path, "echo ran >> ran; sleep 0.2") for _ in range(4)]
    for process in starters:
        tell(process)
    for process in starters:
        assert pace.communicate(process, "\n", usual=60)[0] == "started\n"
    assert attempts.end(request).exit_code == 0
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_it_outlives_a_killed_starter_and_a_fresh_engine_finds_it(attempts: Attempts, tmp_path: Path) -> None:
    request = attempts.request("sh")
    process = starter(tmp_path, "echo begun; while [ ! -e go ]; do sleep 0.01; done; echo over; exit 3")
    tell(process)
    assert process.stdout is not None and process.stdout.readline() == "started\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    fresh = ProcessEngine()
    assert fresh.observe(request.paths).presence is Presence.RUNNING
    attempts.says(request, "begun")
    (tmp_path / "go").touch()
    assert attempts.end(request).exit_code == 3
    assert attempts.log(request) == "begun\nover\n"


def test_it_ended_while_no_controller_was_there_and_its_exit_code_is_kept(attempts: Attempts, tmp_path: Path) -> None:
    request = attempts.request("sh")
    process = starter(tmp_path, "exit 5")
    tell(process)
    pace.communicate(process, "\n", usual=60)
    assert attempts.end(request).exit_code == 5


# A pid alone proves nothing


@pytest.mark.parametrize("change", [{"started": 1}, {"boot": "another boot"}, {"pid": 2**22 - 1}])
def test_a_pid_taken_over_by_another_process_is_not_the_attempt(attempts: Attempts, change: dict[str, Any]) -> None:
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
        assert attempts.engine.observe(request.paths).presence is Presence.LOST
        attempts.engine.stop(request.paths, force=True)
        assert attempts.engine.observe(request.paths).presence is Presence.LOST
        assert bystander.poll() is None, "a stranger was killed"
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


def test_a_wrapper_that_is_dead_but_not_yet_taken_note_of_is_lost(attempts: Attempts) -> None:
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


def test_a_record_that_cannot_be_read_is_an_error_not_a_new_start(attempts: Attempts) -> None:
    request = attempts.request("sh")
    request.paths.folder.mkdir(parents=True)
    request.paths.claim.write_text("{")
    with pytest.raises(EngineError, match=r"claim\.json: cannot be read"):
        attempts.engine.observe(request.paths)
    request.paths.claim.write_text("{}")  # nothing for the fixture to end
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


def test_a_command_may_end_well_on_term(attempts: Attempts) -> None:
    request = attempts.sh("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    attempts.says(request, "ready")
    attempts.engine.stop(request.paths, force=False)
    attempts.engine.stop(request.paths, force=False)  # asked each turn, sent once
    end = attempts.end(request)
    assert (end.exit_code, end.signal) == (0, None)
    assert attempts.log(request).endswith("saved\n")  # the shell itself may say that its sleep was terminated


def test_kill_ends_what_ignores_term_with_its_grandchildren(attempts: Attempts) -> None:
    request = attempts.sh("trap '' TERM; sh -c 'sleep 60 & echo $!; wait' & echo $!; while :; do sleep 0.01; done")
    attempts.wait(lambda: attempts.log(request).count("\n") == 2)
    attempts.engine.stop(request.paths, force=False)
    assert attempts.engine.observe(request.paths).presence is Presence.RUNNING
    attempts.engine.stop(request.paths, force=True)
    end = attempts.end(request)
    assert (end.presence, end.signal) == (Presence.ENDED, signal.SIGKILL)
    for pid in attempts.log(request).split():
        attempts.wait(lambda pid=pid: gone(int(pid)))


def test_what_a_finished_command_leaves_behind_in_its_group_is_ended(attempts: Attempts) -> None:
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
    stranger = subprocess.Popen(["sleep", "60"], env={**ENV, "RUNG_FOLDER": str(tmp_path / "attempts" / "10")})
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


def test_stopping_what_has_ended_changes_nothing(attempts: Attempts) -> None:
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


# Limits


def test_the_cpu_limit_is_in_force(attempts: Attempts) -> None:
    request = attempts.python("import os; print(len(os.sched_getaffinity(0)))", limits={"cpus": 1})
    attempts.end(request)
    assert attempts.log(request) == "1\n"
    assert len(os.sched_getaffinity(0)) > 1


def test_the_memory_limit_is_in_force(attempts: Attempts) -> None:
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_DATA), flush=True); x = bytearray(400 << 20)"
    limited = attempts.python(code, limits={"memory": 200 << 20})
    free = attempts.python(code)
    assert attempts.end(limited).exit_code == 1
    assert attempts.log(limited).startswith(f"({200 << 20}, {200 << 20})\n")
    assert "MemoryError" in attempts.log(limited)
    assert attempts.end(free).exit_code == 0


# The log and the files


def test_the_log_is_read_on_from_a_cursor(attempts: Attempts) -> None:
    request = attempts.sh("printf 0123456789")
    assert attempts.engine.read_log(attempts.request("x").paths, 0, 10) == b""
    attempts.end(request)
    read = [attempts.engine.read_log(request.paths, offset, 4) for offset in (0, 4, 8, 10, 99)]
    assert read == [b"0123", b"4567", b"89", b"", b""]


def test_a_short_command_runs_in_the_attempts_environment(attempts: Attempts, tmp_path: Path) -> None:
    request = attempts.request("x")
    code, out, err = attempts.engine.run(
        ["sh", "-c", "pwd; printf '\\377'; echo $NOT_MINE; echo e >&2; exit 3"], request, 20
    )
    assert (code, out, err) == (3, f"{tmp_path}\n\ufffd\n", "e\n")
    with pytest.raises(EngineError, match="no-such-command: could not be run"):
        attempts.engine.run(["no-such-command"], request, 20)
    with pytest.raises(EngineError, match="timed out"):
        attempts.engine.run(["sleep", "60"], request, 0.1)


def test_files_and_folders_of_the_pattern_are_checkpoints_and_known_by_their_content(
    attempts: Attempts, tmp_path: Path
) -> None:
    (tmp_path / "step_1.pt").write_bytes(b"abc")
    (tmp_path / "step_3.pt").symlink_to(tmp_path / "step_1.pt")
    (tmp_path / ".step_4.pt").touch()
    (tmp_path / "other.pt").touch()
    os.utime(tmp_path / "step_1.pt", (5.0, 5.0))
    request = replace(attempts.request("true"), checkpoint_dir=tmp_path)
    (entry,) = attempts.engine.list_files(request, "*step_*.pt")
    assert (entry.name, entry.size, entry.written_at, entry.is_folder) == ("step_1.pt", 3, 5.0, False)
    (tmp_path / "step_1.pt").write_bytes(b"abX")
    os.utime(tmp_path / "step_1.pt", (5.0, 5.0))
    (other,) = attempts.engine.list_files(request, "step_*.pt")
    assert other.fingerprint != entry.fingerprint and other.fingerprint.rsplit(":", 2)[0] == "step_1.pt"
    (tmp_path / "step_2" / "deep").mkdir(parents=True)
    (tmp_path / "step_2" / "deep" / "a").write_bytes(b"12345")
    (folder,) = attempts.engine.list_files(request, "step_2*")
    assert (folder.name, folder.size, folder.is_folder) == ("step_2", 5, True)
    (tmp_path / "step_2" / "b").touch()
    assert attempts.engine.list_files(request, "step_2*")[0].fingerprint != folder.fingerprint
    assert attempts.engine.list_files(replace(request, checkpoint_dir=tmp_path / "nowhere"), "*") == []


def test_the_gpu_is_the_one_the_driver_reports(
    attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for said, found in [
        ("0, GPU-1, 1, 580.1, 7.5, TITAN RTX\\n1, GPU-2, 1, 580.1, 7.5, TITAN RTX\\n", ("TITAN RTX", (7, 5))),
        ("0, GPU-1, 1, 580.1, 6.0, Tesla P100\\n", ("Tesla P100", (6, 0))),
        ("", None),
        ("No devices were found\\n", None),
        ("[N/A], [N/A]\\n", None),
    ]:
        driver.write_text(f"#!/bin/sh\nprintf '{said}'\n")
        driver.chmod(0o755)
        gpu = attempts.engine.gpu()
        assert (gpu and (gpu.name, gpu.capability)) == found
    driver.write_text("#!/bin/sh\nexit 9\n")
    assert attempts.engine.gpu() is None


def test_a_log_that_cannot_be_read_is_reported_as_an_engine_error(attempts: Attempts) -> None:
    request = attempts.request("true")
    request.paths.log.mkdir(parents=True)
    with pytest.raises(EngineError, match="log: cannot be read: Is a directory"):
        attempts.engine.read_log(request.paths, 0, 10)
