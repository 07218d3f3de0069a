"""Tests the process engine with real processes: start, exit code, limits, log and files."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rung.jobs.job import Job
from rung.jobs.model.engine import EndedBy
from rung.jobs.model.errors import EngineError
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.controller.log_watch import LogWatch, fault_at_end
from rung.runner.engines import process
from rung.runner.hosts.cpu_cores import cores_in_use
from rung.runner.seams.engine import Observation, Presence, Request
from tests.support.process_attempts import ENV, Attempts

# Starting, observing, ending


def test_an_attempt_never_started_is_absent(attempts: Attempts) -> None:
    assert attempts.engine.observe(attempts.request("true").paths) == Observation(Presence.ABSENT)


def test_a_start_that_fails_leaves_no_draft_of_its_request(attempts: Attempts) -> None:
    request = attempts.request("true")
    request.paths.request.mkdir(parents=True)
    with pytest.raises(EngineError, match="could not be started"):
        attempts.engine.start(request, {})
    assert list(request.paths.folder.iterdir()) == [request.paths.request]


def test_a_start_takes_the_place_of_the_draft_that_a_killed_controller_left(attempts: Attempts) -> None:
    request = attempts.request("true")
    request.paths.folder.mkdir(parents=True)
    request.paths.request.with_suffix(".draft").write_text("{", encoding="utf-8")
    attempts.engine.start(request, {})
    attempts.end(request)
    assert not [path.name for path in request.paths.folder.iterdir() if path.name.startswith("request.draft")]


def test_absent_to_running_to_ended_with_its_exit_code(attempts: Attempts, tmp_path: Path) -> None:
    request = attempts.sh("echo begun; while [ ! -e go ]; do sleep 0.01; done; echo out; echo err >&2; exit 7")
    seen = attempts.engine.observe(request.paths)
    assert (seen.presence, seen.exit_code) == (Presence.RUNNING, None)
    attempts.wait_for_log(request, "begun")
    (tmp_path / "go").touch()
    end = attempts.end(request)
    assert (end.presence, end.exit_code, end.signal) == (Presence.ENDED, 7, None)
    assert end.ended_by is EndedBy.ITSELF
    assert end.started_at == seen.started_at
    assert end.started_at is not None and end.ended_at is not None and end.started_at <= end.ended_at
    assert attempts.log(request) == "begun\nout\nerr\n"


def test_a_command_killed_from_outside_ended_with_that_signal(attempts: Attempts) -> None:
    end = attempts.end(attempts.sh("kill -SEGV $$"))
    assert (end.presence, end.exit_code, end.signal) == (Presence.ENDED, None, signal.SIGSEGV)
    assert end.ended_by is None


@pytest.mark.parametrize("number", [signal.SIGKILL, 40])
def test_an_end_by_any_signal_is_a_fault(attempts: Attempts, number: int) -> None:
    request = attempts.sh(f"echo last words; kill -{int(number)} $$")
    end = attempts.end(request)
    assert end.signal == number
    spec = JobSpec(name="a", run=("x",))
    watch = LogWatch(request.paths.log, Job("a-1", spec, JobState.RUNNING, "", 0.0, 0.0, Knobs()))
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
def test_a_run_that_ends_while_it_diverges_is_a_fault_unless_the_warning_stops_nothing(
    attempts: Attempts, warning: object, code: int, kind: FaultKind | None
) -> None:
    healthy = "for n in $(seq 200); do echo step $n loss 2.$((n % 7)); done"
    losses = f"{healthy}; for n in $(seq 201 240); do echo step $n loss 9; done"
    request = attempts.sh(f"{losses}; exit {code}")
    end = attempts.end(request)
    spec = JobSpec.model_validate({"name": "a", "run": "x", "recovery": {"early_warning": warning}})
    watch = LogWatch(request.paths.log, Job("a-1", spec, JobState.RUNNING, "", 0.0, 0.0, Knobs()))
    watch.read_to_end()
    fault = fault_at_end(end, watch)
    assert (fault and fault.kind) == kind


def test_a_missing_command_ends_with_127_and_a_line_in_the_log(attempts: Attempts) -> None:
    request = attempts.start("no-such-command", "x")
    end = attempts.end(request)
    assert (end.presence, end.exit_code) == (Presence.ENDED, 127)
    assert attempts.log(request).startswith("rung: cannot start no-such-command: ")


def test_a_missing_working_folder_ends_with_127_and_a_line_in_the_log(attempts: Attempts, tmp_path: Path) -> None:
    request = attempts.request("true")
    away = Request(**{**vars(request), "cwd": tmp_path / "nowhere"})
    attempts.engine.start(away, {})
    assert attempts.end(request).exit_code == 127
    assert "nowhere" in attempts.log(request)


def test_arguments_environment_and_folder_reach_the_command_unchanged(attempts: Attempts, tmp_path: Path) -> None:
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


def test_the_command_does_not_get_the_environment_of_the_controller(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTROLLERS_OWN", "hush")
    request = attempts.sh("env")
    attempts.end(request)
    assert "PATH=" in attempts.log(request)
    assert "CONTROLLERS_OWN" not in attempts.log(request)


def test_a_secret_with_a_null_byte_is_an_error_and_starts_nothing(attempts: Attempts) -> None:
    request = attempts.request("true")
    with pytest.raises(EngineError, match="could not be started"):
        attempts.engine.start(request, {"TOKEN": "a\0b"})
    assert attempts.engine.observe(request.paths).presence is Presence.ABSENT


def test_a_folder_that_cannot_be_created_is_an_error(attempts: Attempts, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(EngineError, match=r"could not be started: .*File exists"):
        attempts.sh("true")


# Limits


def test_the_cpu_limit_is_in_force(attempts: Attempts) -> None:
    request = attempts.python("import os; print(len(os.sched_getaffinity(0)))", limits={"cpus": 1})
    attempts.end(request)
    assert attempts.log(request) == "1\n"
    assert len(os.sched_getaffinity(0)) > 1


def test_jobs_with_a_cpu_limit_have_cores_of_their_own(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"cores-{os.getpid()}-{number}" for number in range(3)]

    def of_this_test(allowed: frozenset[int]) -> dict[str, frozenset[int]]:
        # Other jobs of this machine may have cores, too.
        return {job: cores for job, cores in cores_in_use(allowed).items() if job in names}

    def started(name: str) -> tuple[Request, str]:
        code = "import os, time; print('cores', *sorted(os.sched_getaffinity(0)), 'end'); time.sleep(3600)"
        request = attempts.request(sys.executable, "-c", code, limits={"cpus": 1})
        request = replace(request, env={**ENV, "RUNG_JOB": name})
        attempts.made[-1] = request
        attempts.engine.start(request, {})
        attempts.wait_for_log(request, "end")
        return request, attempts.log(request)

    monkeypatch.setattr(process, "cores_in_use", of_this_test)
    first, *others = sorted(os.sched_getaffinity(0))
    one, on_first = started(names[0])
    _, on_second = started(names[1])
    assert (on_first, on_second) == (f"cores {first} end\n", f"cores {others[0]} end\n")
    attempts.engine.stop(one.paths, force=True)
    attempts.end(one)
    _, again = started(names[2])
    assert again == on_first


def test_the_memory_limit_is_in_force(attempts: Attempts) -> None:
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_DATA), flush=True); x = bytearray(400 << 20)"
    limited = attempts.python(code, limits={"memory": 200 << 20})
    free = attempts.python(code)
    assert attempts.end(limited).exit_code == 1
    assert attempts.log(limited).startswith(f"({200 << 20}, {200 << 20})\n")
    assert "MemoryError" in attempts.log(limited)
    assert attempts.end(free).exit_code == 0


# The log and the files


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


def test_files_and_folders_of_the_pattern_are_listed_with_a_fingerprint_of_their_content(
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


def test_a_checkpoint_is_copied_to_the_folder_of_a_trial(attempts: Attempts, tmp_path: Path) -> None:
    source = attempts.request("true")
    trial = replace(attempts.request("true"), checkpoint_dir=tmp_path / "stays" / "2" / "checkpoints")
    source.checkpoint_dir.mkdir()
    (source.checkpoint_dir / "step_1.pt").write_bytes(b"abc")
    (source.checkpoint_dir / "step_2").mkdir()
    (source.checkpoint_dir / "step_2" / "part").write_bytes(b"12345")
    for name in ("step_1.pt", "step_2", "step_1.pt", "step_2"):
        attempts.engine.copy(source, trial, name)
    there, here = (attempts.engine.list_files(each, "*") for each in (source, trial))
    assert [each.fingerprint for each in sorted(there, key=str)] == [each.fingerprint for each in sorted(here, key=str)]
    with pytest.raises(EngineError, match="gone could not be copied there"):
        attempts.engine.copy(source, trial, "gone")


def test_only_the_folder_of_a_later_residence_is_removed(attempts: Attempts) -> None:
    request = attempts.request("true")
    stays = request.paths.job_folder / "stays"
    for number in ("2", "3"):
        (stays / number / "checkpoints").mkdir(parents=True)
    for _ in range(2):
        attempts.engine.remove_residence(request, 2)
        assert [path.name for path in stays.iterdir()] == ["3"]
    with pytest.raises(EngineError, match="residence 1 is the job's own folder"):
        attempts.engine.remove_residence(request, 1)


def test_the_gpu_is_read_from_the_driver(attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for output, found in [
        ("0, GPU-1, 1, 580.1, 7.5, TITAN RTX\\n1, GPU-2, 1, 580.1, 7.5, TITAN RTX\\n", ("TITAN RTX", (7, 5))),
        ("0, GPU-1, 1, 580.1, 6.0, Tesla P100\\n", ("Tesla P100", (6, 0))),
        ("", None),
        ("No devices were found\\n", None),
        ("[N/A], [N/A]\\n", None),
    ]:
        driver.write_text(f"#!/bin/sh\nprintf '{output}'\n")
        driver.chmod(0o755)
        gpu = attempts.engine.gpu()
        assert (gpu and (gpu.name, gpu.capability)) == found
    driver.write_text("#!/bin/sh\nexit 9\n")
    assert attempts.engine.gpu() is None
