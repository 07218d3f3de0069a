"""Tests what becomes of running jobs when their controller is killed, its terminal closed, or the machine restarted."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.state import JobState
from tests import pace
from tests.support.background import Watched
from tests.support.process_attempts import gone

Rung = Callable[..., Any]
Spawn = Callable[..., "subprocess.Popen[bytes]"]
BIN = Path(sys.executable).parent
# Does not end when it is asked to.
STUBBORN = "trap '' TERM; i=0; while :; do i=$((i+1)); echo \"step $i loss 0.5\"; sleep 0.1; done"


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *words: str | Path) -> None:
        self.pid, self._ours = pty.fork()
        if self.pid == 0:  # pragma: no cover
            os.execv(BIN / "rung", ["rung", *map(str, words)])
        self.output = b""

    def read_until(self, text: bytes) -> None:
        patience = pace.Patience(60)
        while text not in self.output:
            assert not patience.is_over(), f"{text!r} did not come: {self.output[-1000:]!r}"
            if select.select([self._ours], [], [], 0.1)[0]:
                self.output += os.read(self._ours, 65536)

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def close(self) -> None:
        os.close(self._ours)

    def wait(self) -> int:
        """Return how the command ended: its exit code, or minus the number of the signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def start(watched: Watched, rung: Rung, **fields: Any) -> str:
    """Launch a job, and return its id when it runs."""
    assert rung("launch", watched.job_file(**fields)).code == 0
    watched.wait_for("steady-1", "RUNNING")
    return "steady-1"


# Killed


@pytest.mark.long
@pytest.mark.sample
def test_a_cancel_ends_the_process_although_the_controller_was_killed(watched: Watched, rung: Rung) -> None:
    job = start(watched, rung, script=STUBBORN, recovery={"grace": 0.5})
    group, killed = watched.group(job), watched.kill_controller()
    assert not gone(group)
    ran = rung("cancel", job)
    assert (ran.code, ran.out, ran.err) == (0, f"{job} is CANCELLED\n", "")
    assert gone(group)
    assert watched.pid not in (0, killed)


@pytest.mark.long
@pytest.mark.sample
def test_a_cancel_says_why_it_cannot_end_the_process(watched: Watched, rung: Rung) -> None:
    job = start(watched, rung)
    watched.kill_controller()
    log = watched.paths.controller_log
    log.unlink()
    log.mkdir()
    ran = rung("cancel", job)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"rung: {job}: the cancel is noted, but the job goes on, because {log}: cannot be opened")
    assert ran.err.count("\n") == 1 and not gone(watched.group(job))
    log.rmdir()
    assert rung("cancel", job).out == f"{job} is CANCELLED\n"


@pytest.mark.long
@pytest.mark.sample
def test_a_cancel_without_a_controller_of_its_own_says_that_nobody_carries_it_out(watched: Watched, rung: Rung) -> None:
    job = start(watched, rung)
    watched.kill_controller()
    ran = rung("cancel", job, env={"RUNG_CONTROLLER": "manual"})
    assert ran.code == 0 and ran.out.startswith(f"{job} is RUNNING; cancelling")
    assert f"nobody watches {job}" in ran.err and not gone(watched.group(job))
    assert rung("controller", "--until-idle").code == 0
    assert watched.job(job).state is JobState.CANCELLED


@pytest.mark.parametrize("command", ["launch", pytest.param("retry", marks=pytest.mark.long), "controller"])
def test_the_next_command_picks_up_the_jobs_of_a_killed_controller(command: str, watched: Watched, rung: Rung) -> None:
    job = start(watched, rung)
    assert rung("launch", "-f", watched.job_file("other", "exit 3")).code == 1
    killed = watched.kill_controller()
    assert "nobody watches 1 active job" in rung("queue").err
    other = watched.home.parent / "other.yaml"
    words = {"launch": ["launch", other], "retry": ["retry", "other"], "controller": ["controller", "--background"]}
    assert rung(*words[command]).code == 0
    assert watched.pid not in (0, killed)
    watched.go.touch()
    watched.wait_for(job, "SUCCEEDED")
    assert len(watched.attempts(job)) == 1


@pytest.mark.long
@pytest.mark.sample
def test_a_followed_job_gets_another_controller_when_its_own_is_killed(
    watched: Watched, spawn: Spawn, home: Path
) -> None:
    followed = spawn("launch", "-f", watched.job_file())
    watched.wait(lambda: watched.paths.store.exists() and watched.pid)
    watched.wait_for("steady-1", "RUNNING")
    killed = watched.kill_controller()
    watched.wait(lambda: watched.pid not in (0, killed))
    watched.go.touch()
    assert pace.wait(followed, 60) == 0
    assert followed.stdout is not None and b"SUCCEEDED" in followed.stdout.read()
    assert len(watched.attempts("steady-1")) == 1


@pytest.mark.long
@pytest.mark.sample
def test_a_followed_job_gets_none_in_place_of_one_that_a_person_stopped(
    watched: Watched, spawn: Spawn, rung: Rung, tmp_path: Path
) -> None:
    with (tmp_path / "errors").open("wb") as errors:
        followed = spawn("launch", "-f", watched.job_file(), stderr=errors)
    watched.wait(lambda: watched.paths.store.exists() and watched.pid)
    watched.wait_for("steady-1", "RUNNING")
    assert rung("controller", "--stop").code == 0
    watched.wait(lambda: b"nobody watches steady-1" in (tmp_path / "errors").read_bytes())
    watched.go.touch()
    watched.wait(lambda: gone(watched.group("steady-1")))
    assert watched.pid == 0 and followed.poll() is None
    assert rung("controller", "--background").code == 0
    assert pace.wait(followed, 60) == 0


# The terminal


@pytest.mark.long
@pytest.mark.sample
def test_a_closed_terminal_ends_the_command_and_neither_controller_nor_job(watched: Watched) -> None:
    terminal = Terminal("launch", "-f", watched.job_file())
    terminal.read_until(b"attempt 1: step")
    pid = watched.pid
    terminal.close()
    assert terminal.wait() == -signal.SIGHUP
    assert watched.pid == pid and not gone(watched.group("steady-1"))
    watched.go.touch()
    watched.wait_for("steady-1", "SUCCEEDED")
    assert len(watched.attempts("steady-1")) == 1


@pytest.mark.long
@pytest.mark.sample
def test_ctrl_c_ends_the_command_and_names_the_one_that_goes_back_to_the_story(watched: Watched) -> None:
    terminal = Terminal("launch", "-f", watched.job_file())
    terminal.read_until(b"attempt 1: step")
    pid = watched.pid
    terminal.press(b"\x03")
    terminal.read_until(b"shows it")
    assert terminal.wait() == 130
    terminal.close()
    assert f"steady-1 goes on; controller pid {pid} watches it; `rung follow steady-1`".encode() in terminal.output
    assert watched.pid == pid and not gone(watched.group("steady-1"))
    back = Terminal("follow", "steady-1")
    back.read_until(b"attempt 1: step")
    assert b"launched" in back.output, "what has happened so far comes first"
    watched.go.touch()
    back.read_until(b"SUCCEEDED")
    assert back.wait() == 0
    back.close()


# The machine


@pytest.mark.long
@pytest.mark.sample
def test_a_restarted_machine_relaunches_its_jobs_with_the_next_command_and_harms_no_other_process(
    watched: Watched, rung: Rung
) -> None:
    script = (
        'i=0; while [ ! -e "$GO" ]; do i=$((i+1)); echo "step $i loss 0.5"; sleep 0.1; '
        '[ "$RUNG_ATTEMPT" = 2 ] && break; done; echo "step 9999 loss 0.1"'
    )
    job = start(watched, rung, script=script)
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        restart_the_machine(watched, job, stranger.pid)
        assert "nobody watches 1 active job" in rung("queue").err
        assert rung("controller", "--stop").out == "no controller is running\n"
        assert rung("launch", watched.job_file("other", "echo step 1 loss 0.1")).code == 0
        watched.wait_for(job, "SUCCEEDED")
        first, second = watched.attempts(job)
        assert first.fault is not None and first.fault.kind == "infra_fault" and second.outcome == "succeeded"
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def restart_the_machine(watched: Watched, job: str, stranger: int) -> None:
    """Leave what a restart of the machine leaves: no process of ours, another boot id, pids that are others' now."""
    files, claim = watched.files(job), json.loads(watched.files(job).claim.read_bytes())
    watched.kill_controller()
    group = watched.group(job)
    os.kill(claim["pid"], signal.SIGKILL)
    watched.wait(lambda: gone(claim["pid"]) and gone(group))
    claim |= {"boot": "00000000-0000-0000-0000-000000000000", "pid": stranger}
    files.claim.write_text(json.dumps(claim))
    watched.paths.lock.write_text(str(stranger))
