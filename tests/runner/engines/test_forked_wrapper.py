"""Tests wrappers that a server forks: what a job has from them, and that they need no server and no controller."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rung.runner.engines import forked_wrapper
from rung.runner.engines.process import ProcessEngine
from rung.runner.seams.engine import Presence, Request
from tests import pace
from tests.support.process_attempts import Attempts, Wait, gone

# What a process has from the one that started it.
SEEN = """
import json, os, resource, signal
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
kept = ("SigBlk", "SigIgn", "SigCgt", "Umask", "Cpus_allowed", "NoNewPrivs", "CapEff", "Groups")
limits = [resource.getrlimit(getattr(resource, each)) for each in dir(resource) if each.startswith("RLIMIT_")]
print(json.dumps([
    {name: status[name].strip() for name in kept}, limits, os.nice(0), open("/proc/self/cgroup").read(),
    sorted((name, os.readlink("/proc/self/fd/" + name)) for name in ("0",)), sorted(os.listdir("/proc/self/fd")),
    os.getcwd(), {name: value for name, value in os.environ.items() if name != "RUNG_FOLDER"},
    os.getsid(0) == os.getppid(), os.getpgid(0) == os.getpid()]))
"""
STARTER = """
import os, sys
from pathlib import Path
from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.process import ProcessEngine
from rung.runner.seams.engine import Request
folder = Path(sys.argv[1])
request = Request("a-1", 1, ("sh", "-c", "echo ran >> ran; exit 3"), folder.parents[4], {"PATH": os.environ["PATH"]},
                  AttemptPaths(folder), folder.parents[4] / "checkpoints")
print("ready", flush=True)
ProcessEngine().start(request, {})
"""


@pytest.fixture
def forked(tmp_path: Path, wait_until: Wait) -> Iterator[Attempts]:
    made = Attempts(tmp_path, wait_until, tmp_path / "home" / "jobs" / "a-1")
    yield made
    for request in made.made:
        made.wait(lambda request=request: made.engine.observe(request.paths).presence is not Presence.RUNNING)


def servers(attempts: Attempts) -> list[int]:
    """Return the servers of the home of these attempts: their command line names it, as no wrapper's does."""
    word, found = str(attempts.folder / "home" / "wrappers-").encode(), []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                found += [int(process.name)] if word in (process / "cmdline").read_bytes() else []
            except OSError:
                continue
    return [pid for pid in found if not gone(pid)]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


WAITING = "echo begun; while [ ! -e go ]; do sleep 0.01; done; exit 4"


def test_a_job_has_the_same_from_a_forked_wrapper_as_from_one_of_its_own(forked: Attempts, wait_until: Wait) -> None:
    direct = Attempts(forked.folder, wait_until)
    logs = []
    for attempts in (forked, direct):
        request = attempts.start(sys.executable, "-c", SEEN)
        assert attempts.end(request).exit_code == 0
        logs.append(json.loads(attempts.log(request)))
    assert logs[0] == logs[1]
    assert logs[0][4] == [["0", "/dev/null"]]
    assert len(servers(forked)) == 1


def test_signals_that_the_controller_ignores_or_blocks_are_not_those_of_the_job(
    tmp_path: Path, forked: Attempts
) -> None:
    request = forked.request("x")
    code = "import signal\nfor each in (1, 2, 3, 10, 13): signal.signal(each, signal.SIG_IGN)\n"
    code += "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])\n"
    script = STARTER.replace("echo ran >> ran; exit 3", "grep Sig[BI] /proc/self/status")
    pace.run(
        [sys.executable, "-c", code + script, str(request.paths.folder)], usual=60, capture_output=True, check=True
    )
    forked.end(request)
    # The C library keeps signals 32 and 33 to itself: posix_spawn may leave them ignored, and nobody can change that.
    masks = [int(line.split()[1], 16) & ~(0b11 << 31) for line in forked.log(request).splitlines()]
    assert masks == [0, 0]


def test_an_attempt_outlives_the_server_and_the_next_one_gets_a_new_server(forked: Attempts, tmp_path: Path) -> None:
    first = forked.sh(WAITING)
    (server,) = servers(forked)
    assert parent(forked.claim(first)["pid"]) == server
    os.kill(server, signal.SIGKILL)
    forked.wait(lambda: gone(server))
    second = forked.sh(WAITING)
    assert parent(forked.claim(second)["pid"]) in servers(forked)
    (tmp_path / "go").touch()
    assert [forked.end(each).exit_code for each in (first, second)] == [4, 4]


def test_a_server_that_nobody_asks_ends_and_leaves_nothing(forked: Attempts, tmp_path: Path) -> None:
    left = tmp_path / "home" / "wrappers-0000"
    left.mkdir(parents=True)
    (left / "socket").touch()
    request = forked.sh(WAITING)
    forked.wait(lambda: not servers(forked))
    forked.wait(lambda: sorted(path.name for path in (tmp_path / "home").iterdir()) == ["jobs"])
    assert forked.engine.observe(request.paths).presence is Presence.RUNNING
    (tmp_path / "go").touch()
    assert forked.end(request).exit_code == 4


def test_many_threads_start_attempts_at_once(forked: Attempts) -> None:
    requests = [forked.request("sh", "-c", f"exit {number}") for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda request: forked.engine.start(request, {}), requests))
    assert [forked.end(request).exit_code for request in requests] == list(range(12))
    assert len(servers(forked)) == 1


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.02, 0.05, 0.1, 0.15, 0.2])
def test_a_start_cut_by_the_end_of_its_controller_neither_doubles_nor_loses_the_attempt(
    forked: Attempts, tmp_path: Path, delay: float
) -> None:
    request = forked.request("sh", "-c", "echo ran >> ran; exit 3")
    command = [sys.executable, "-c", STARTER, str(request.paths.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ}) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.kill()
    ProcessEngine().start(request, {})
    assert forked.end(request).exit_code == 3
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_a_secret_is_neither_in_the_words_nor_in_the_variables_of_a_forked_wrapper(
    forked: Attempts, tmp_path: Path
) -> None:
    request = forked.request("sh", "-c", WAITING)
    forked.engine.start(request, {"TOKEN": "hush-4711"})
    wrapper = Path(f"/proc/{forked.claim(request)['pid']}")
    for process in (wrapper, *(Path(f"/proc/{pid}") for pid in servers(forked))):
        assert b"hush-4711" not in (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    assert str(request.paths.folder).encode() in (wrapper / "cmdline").read_bytes().split(b"\0")
    (tmp_path / "go").touch()


def deep(forked: Attempts, tmp_path: Path) -> Request:
    forked.job_folder = tmp_path / ("d" * 200) / "home" / "jobs" / "a-1"
    return forked.request("sh", "-c", WAITING)


def test_a_home_with_a_path_that_is_too_long_for_a_socket_has_a_server(forked: Attempts, tmp_path: Path) -> None:
    request = deep(forked, tmp_path)
    forked.engine.start(request, {})
    assert parent(forked.claim(request)["pid"]) != 1
    (tmp_path / "go").touch()
    assert forked.end(request).exit_code == 4


@pytest.mark.parametrize("fault", ["no server", "a folder that others can read", "no sockets"])
def test_without_a_server_the_wrapper_is_started_directly(
    forked: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault == "no server":
        monkeypatch.setattr(forked_wrapper, "SERVER", tmp_path / "gone.py")
    elif fault == "no sockets":
        monkeypatch.delattr(socket, "AF_UNIX")
    else:
        (tmp_path / "home" / f"wrappers-{forked_wrapper._key()}").mkdir(parents=True, mode=0o755)
    request = forked.sh("exit 4")
    assert forked.end(request).exit_code == 4
    assert not servers(forked)
    again = forked.sh("exit 5")
    assert forked.end(again).exit_code == 5


def test_code_of_another_version_has_another_server(forked: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    before = forked_wrapper._key()
    assert forked_wrapper._key() == before
    monkeypatch.setattr(forked_wrapper, "SERVER", Path(__file__))
    assert forked_wrapper._key() != before
