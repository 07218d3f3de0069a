"""Tests controllers in the background: who starts one, what it has from the shell, what is said, and when it ends."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import ControllerError
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.load import load_spec
from rung.runner.hosts.this_machine import MAX_PARALLEL
from rung.runner.launch.request import INHERITED
from rung.runner.session import background
from rung.runner.session.session import Session
from rung.runner.session.watching import describe
from rung.runner.state.home import make_home
from rung.runner.state.lock import is_owned
from rung.runner.state.owner import StopRequest
from tests import pace
from tests.support.background import Watched
from tests.support.process_attempts import gone
from tests.support.stored_jobs import submitted

Rung = Callable[..., Any]
Spawn = Callable[..., "subprocess.Popen[bytes]"]
NOBODY = "no controller is running, so nobody watches {}: `rung controller --background` starts one\n"


def words_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]


def test_a_launch_starts_a_controller_that_does_not_belong_to_its_shell(watched: Watched, rung: Rung) -> None:
    script = 'printf "%s" "$TOKEN" > "$GO.token"; umask > "$GO.umask"; while [ ! -e "$GO" ]; do sleep 0.1; done'
    file = watched.job_file("own", script, secrets=["TOKEN"])
    ran = rung("launch", file, env={"TOKEN": "hunter2", "RUNG_SECRETS": "TOKEN"})
    pid = watched.pid
    assert ran.code == 0 and pid
    assert ran.out.splitlines()[-1] == f"controller pid {pid} watches it; `rung follow own-1` shows it"
    assert os.getsid(pid) == pid, "it has a session of its own"
    assert Path(f"/proc/{pid}/cwd").resolve() == watched.home
    files = [Path(f"/proc/{pid}/fd/{number}").resolve() for number in range(3)]
    assert files == [Path(os.devnull), watched.paths.controller_log, watched.paths.controller_log]
    assert stat.S_IMODE(watched.paths.controller_log.stat().st_mode) == 0o600
    assert words_of(pid)[1:] == [*background.PROGRAM, "controller", "--idle-end", str(background.IDLE_SECONDS)]
    # The job has what its shell had, and the secret is in no file that stays.
    watched.wait((watched.go.with_name("go.umask")).exists)
    assert watched.go.with_name("go.token").read_text() == "hunter2"
    assert int(watched.go.with_name("go.umask").read_text(), 8) == 0o022
    kept = [path for path in watched.home.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert kept == []


def test_a_second_launch_uses_the_controller_that_runs(watched: Watched, rung: Rung) -> None:
    assert rung("launch", watched.job_file()).code == 0
    pid = watched.pid
    ran = rung("launch", "--json", watched.job_file())
    assert json.loads(ran.out)["id"] == "steady-2" and watched.pid == pid
    watched.wait_for("steady-2", "RUNNING")
    watched.go.touch()
    watched.wait_for("steady-1", "SUCCEEDED")
    watched.wait_for("steady-2", "SUCCEEDED")


def test_a_launch_says_which_variables_the_running_controller_has_otherwise(watched: Watched, rung: Rung) -> None:
    file = watched.job_file()
    assert "note: controller" not in rung("launch", file).err
    assert "note: controller" not in rung("launch", file, env={"LANG": "C", "ANY": "1"}).err
    ran = rung("launch", file, env={"CUDA_VISIBLE_DEVICES": "1", "PATH": "/opt/x:" + os.environ["PATH"]})
    (note,) = [line for line in ran.err.splitlines() if line.startswith("note: controller")]
    assert "other values of CUDA_VISIBLE_DEVICES, PATH," in note and f"pid {watched.pid}" in note


def test_what_is_compared_is_what_a_job_inherits() -> None:
    names = background.DECIDING.pattern.replace(r"_\w+", "_X").split("|")
    assert [name for name in names if not INHERITED.fullmatch(name)] == [MAX_PARALLEL]


def test_a_controller_ends_by_itself_when_no_job_is_active_for_a_while(watched: Watched, spawn: Spawn) -> None:
    controller = spawn("controller", "--idle-end", "0.5")
    watched.wait(lambda: watched.pid)
    session = Session.open()
    job = session.submit(load_spec(watched.job_file()), watched.home.parent)
    watched.wait_for(job.id, "RUNNING")
    assert controller.poll() is None
    watched.go.touch()
    assert pace.wait(controller, 60) == 0
    assert session.store.job(job.id).state is JobState.SUCCEEDED
    session.store.close()


def test_a_job_that_comes_while_an_idle_controller_ends_is_not_forgotten(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_home(HomePaths(home))
    session, turns = Session.open(create=True), []

    def control(limit: float | None, stop: StopRequest) -> None:
        turns.append(limit)
        if len(turns) == 1:
            # It has decided to end; another command still sees its lock, and starts none.
            assert is_owned(session.paths)
            submitted(home)
        else:
            stop.is_made = True

    monkeypatch.setattr(session, "_control", control)
    session.control(idle_end=60.0)
    assert turns == [60.0, 60.0]
    session.store.close()


def test_until_idle_waits_for_the_controller_in_the_background(watched: Watched, rung: Rung, spawn: Spawn) -> None:
    assert rung("launch", watched.job_file()).code == 0
    watched.wait_for("steady-1", "RUNNING")
    waiting = spawn("controller", "--until-idle")
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(timeout=1.0)
    watched.go.touch()
    assert pace.wait(waiting, 60) == 0
    assert watched.job("steady-1").state is JobState.SUCCEEDED


def test_status_and_stop(watched: Watched, rung: Rung) -> None:
    ran = rung("controller", "--status")
    assert (ran.code, ran.out) == (1, "no controller is running; no active jobs\n")
    assert not watched.home.exists()
    before = time.time()
    assert rung("launch", watched.job_file()).code == 0
    pid = watched.pid
    ran = rung("controller", "--status")
    assert ran.code == 0 and ran.out.startswith(f"controller pid {pid} watches 1 active job, since ")
    began = time.mktime(time.strptime(ran.out.strip()[-19:], "%Y-%m-%d %H:%M:%S"))
    assert before - 3 <= began <= time.time() + 3
    watched.wait_for("steady-1", "RUNNING")

    ran = rung("controller", "--stop")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"controller pid {pid} has stopped; running jobs go on, and the next controller finds them\n"
    assert gone(pid) and not gone(watched.group("steady-1"))
    assert watched.job("steady-1").state is JobState.RUNNING
    assert rung("controller", "--stop").out == "no controller is running\n"
    ran = rung("controller", "--status")
    assert ran.code == 1 and "1 active job without one: `rung controller --background`" in ran.out

    assert rung("controller", "--background").out.startswith(f"controller pid {watched.pid} watches 1 active job")
    assert rung("controller", "--background").out.startswith(f"controller pid {watched.pid} watches 1 active job")


@pytest.mark.parametrize(
    "words", [["--stop", "--status"], ["--stop", "--until-idle"], ["--until-idle", "--idle-end=1"]]
)
def test_options_that_exclude_each_other(words: tuple[str, ...], home: Path, rung: Rung) -> None:
    ran = rung("controller", *words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1) and not home.exists()


@pytest.mark.parametrize("words", [["queue"], ["history", "a"]])
def test_commands_that_show_active_jobs_say_that_nobody_watches(words: list[str], home: Path, rung: Rung) -> None:
    job_id = submitted(home, JobState.LAUNCHING, JobState.RUNNING)
    assert rung(*words).err == NOBODY.format("1 active job" if words == ["queue"] else job_id)


def test_json_stays_json(home: Path, rung: Rung) -> None:
    job_id = submitted(home, JobState.LAUNCHING, JobState.RUNNING)
    for words in (["queue", "--json"], ["history", "--json", job_id], ["cancel", "--json", job_id]):
        ran = rung(*words)
        assert json.loads(ran.out) and ran.err.count("\n") == 1 and "nobody watches" in ran.err


def test_nothing_is_said_about_jobs_that_have_ended(home: Path, rung: Rung) -> None:
    job_id = submitted(home, JobState.LAUNCHING, JobState.FAILED)
    assert [rung(*words).err for words in (["queue"], ["history", job_id])] == ["", ""]


def test_a_setting_that_nobody_knows_is_refused_before_anything_is_written(watched: Watched, rung: Rung) -> None:
    for words in (["launch", watched.job_file()], ["cancel", "a"], ["retry", "a"]):
        ran = rung(*words, env={"RUNG_CONTROLLER": "never"})
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("rung: RUNG_CONTROLLER=never: write auto") and ran.err.count("\n") == 1
    assert not watched.home.exists()


def test_a_controller_in_the_background_belongs_to_no_job_and_to_no_folder(tmp_path: Path) -> None:
    shell = {
        "PATH": "/bin", "PWD": "/x", "TOKEN": "t", "RUNG_SECRETS": "TOKEN", "RUNG_HOSTS": "hosts.yml",
        "RUNG_FOLDER": "/home/a", "RUNG_MODE": "zero-edit", "RUNG_HOME": "home", "RUNG_MAX_PARALLEL": "3",
    }  # fmt: skip
    assert background.background_environment(shell, HomePaths(tmp_path)) == {
        "PATH": "/bin", "TOKEN": "t", "RUNG_SECRETS": "TOKEN", "RUNG_HOSTS": str(Path.cwd() / "hosts.yml"),
        "RUNG_HOME": str(tmp_path), "RUNG_MAX_PARALLEL": "3",
    }  # fmt: skip


def test_a_controller_that_ends_at_once_is_reported_with_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = HomePaths(tmp_path)
    paths.controller_log.write_text("rung: of an earlier one\n")
    monkeypatch.setattr(background, "PROGRAM", ("-c", "import sys; sys.exit('one\\nrung: no\\x1b[31m luck')"))
    with pytest.raises(ControllerError, match=r"^a controller could not be started: no luck$"):
        background.start_background(paths, os.environ)
    monkeypatch.setattr(background, "PROGRAM", ("-c", "import sys; sys.exit(7)"))
    with pytest.raises(ControllerError, match=r"it ended at once, with exit code 7$"):
        background.start_background(paths, os.environ)


def test_a_long_log_is_kept_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = HomePaths(tmp_path)
    paths.controller_log.write_bytes(b"x" * 100)
    monkeypatch.setattr(background, "LOG_BYTES", 50)
    monkeypatch.setattr(background, "PROGRAM", ("-c", "raise SystemExit('bad')"))
    with pytest.raises(ControllerError, match=r"bad$"):
        background.start_background(paths, os.environ)
    assert paths.controller_log.read_text() == "bad\n"
    assert (tmp_path / "controller.log.1").read_bytes() == b"x" * 100


def test_a_controller_whose_process_is_not_here_is_described(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rung.runner.session.watching.is_owned", lambda paths: True)
    assert (
        describe(HomePaths(home), None) == "a controller watches no active jobs; its process cannot be seen from here"
    )
