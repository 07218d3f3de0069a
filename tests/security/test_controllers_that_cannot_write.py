"""Tests that a full disk or a locked store pauses the controller, loudly, and that it goes on by itself.

In 0.1.0 the controller ended, and nothing started it again outside systemd. Each full disk is a small file system of
its own, which needs root.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import StoreBlocked
from rung.jobs.model.knobs import Knobs
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.session.session import Session
from rung.runner.state import store as store_module
from rung.runner.state.store import Store

Rung = Callable[..., Any]
Spawn = Callable[..., "subprocess.Popen[bytes]"]
Wait = Callable[..., Any]
HOLD = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN EXCLUSIVE")
held.execute("UPDATE meta SET value = value")
print("held", flush=True)
input()
"""


@pytest.fixture
def small_disk(home: Path) -> Iterator[Path]:
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "rung-test", str(home)], check=True)
    yield home
    subprocess.run(["umount", "--lazy", str(home)], check=True)


def job_file(folder: Path, run: str) -> Path:
    file = folder / "job.yaml"
    file.write_text(json.dumps({"name": "a", "run": ["sh", "-c", run]}), encoding="utf-8")
    return file


def fill(disk: Path) -> Path:
    """Write until the disk is full."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError as error:
                assert error.errno == 28  # ENOSPC
    return ballast


def state(rung: Rung) -> str:
    return str(json.loads(rung("queue", "--json").out)[0]["state"])


def test_a_controller_pauses_while_its_disk_is_full_and_goes_on_by_itself(
    small_disk: Path, tmp_path: Path, rung: Rung, spawn: Spawn, wait_until: Wait
) -> None:
    go = tmp_path / "go"
    job = job_file(tmp_path, f"while [ ! -e {go} ]; do sleep 0.1; done; echo hello")
    assert rung("launch", job).code == 0
    errors = tmp_path / "errors"
    with errors.open("wb") as stream:
        controller = spawn("controller", "--until-idle", stderr=stream, stdout=subprocess.DEVNULL)
    wait_until((small_disk / "jobs/a-1/attempts/1/running.json").exists)
    ballast = fill(small_disk)
    wait_until(lambda: "the controller pauses" in errors.read_text())
    assert "the controller pauses" in rung("queue").err
    assert controller.poll() is None
    ballast.unlink()
    go.touch()
    assert controller.wait(60) == 0
    text = errors.read_text()
    assert text.count("the controller pauses") == text.count("the controller goes on") == 1
    assert str(small_disk) in text and "space" in text and "Traceback" not in text
    assert state(rung) == "SUCCEEDED" and "pauses" not in rung("queue").err
    assert rung("logs", "a-1").out == "hello\n"


def test_a_controller_that_is_started_on_a_full_disk_waits_for_room(
    small_disk: Path, tmp_path: Path, rung: Rung, spawn: Spawn, wait_until: Wait
) -> None:
    assert rung("launch", job_file(tmp_path, "echo hello")).code == 0
    ballast = fill(small_disk)
    errors = tmp_path / "errors"
    with errors.open("wb") as stream:
        controller = spawn("controller", "--until-idle", stderr=stream, stdout=subprocess.DEVNULL)
    wait_until(lambda: "the controller pauses" in errors.read_text())
    assert controller.poll() is None
    ballast.unlink()
    assert controller.wait(60) == 0
    assert state(rung) == "SUCCEEDED"


def test_a_job_that_runs_in_the_foreground_survives_a_full_disk_as_well(
    small_disk: Path, tmp_path: Path, rung: Rung, spawn: Spawn, wait_until: Wait
) -> None:
    go = tmp_path / "go"
    errors = tmp_path / "errors"
    job = job_file(tmp_path, f"while [ ! -e {go} ]; do sleep 0.1; done; echo hello")
    with errors.open("wb") as stream:
        followed = spawn("launch", "-f", job, stderr=stream, stdout=subprocess.DEVNULL)
    wait_until((small_disk / "jobs/a-1/attempts/1/running.json").exists)
    ballast = fill(small_disk)
    wait_until(lambda: "the controller pauses" in errors.read_text())
    ballast.unlink()
    go.touch()
    assert followed.wait(60) == 0
    assert errors.read_text().count("the controller pauses") == 1


def test_a_store_that_another_process_holds_pauses_the_controller(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Ten seconds in the product: the longest that it waits for another process before it says so.
    monkeypatch.setattr(store_module, "BUSY_SECONDS", 0.2)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the test's own process keeps its handlers
    session = Session.open(create=True)
    spec = JobSpec.model_validate({"name": "a", "run": "echo hello"})
    job = session.submit(spec, home)
    held = subprocess.Popen(
        [sys.executable, "-c", HOLD, home / "rung.db"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert held.stdout is not None and held.stdout.readline() == b"held\n"
    threading.Timer(2.0, held.communicate, [b"\n"]).start()
    session.control(until_idle=True)
    held.wait()
    told = capfd.readouterr().err
    assert told.count("the controller pauses") == told.count("the controller goes on") == 1
    assert "locked" in told
    assert session.store.job(job.id).state == "SUCCEEDED"
    session.store.close()


def test_a_commit_that_finds_no_room_leaves_no_transaction_open(small_disk: Path) -> None:
    """An open one would refuse every later one, and the controller could not go on."""
    store = Store(small_disk / "rung.db")
    with store.transaction():
        job = store.add_job(JobSpec.model_validate({"name": "a", "run": "x"}), small_disk, at=1.0)
    ballast = fill(small_disk)
    with pytest.raises(StoreBlocked):
        for _ in range(1000):
            with store.transaction():
                store.add_event(job.id, None, "x", {"because": "x" * 5000}, at=1.0)
    ballast.unlink()
    with store.transaction():
        store.change_knobs(job.id, Knobs(lr=1.0))
    assert store.job(job.id).knobs.lr == 1.0
    store.close()


def test_a_store_that_is_broken_is_an_error_and_no_reason_to_wait(tmp_path: Path) -> None:
    (tmp_path / "rung.db").write_bytes(b"not a database, but text" * 100)
    with pytest.raises(Exception, match=r"rung\.db") as caught:
        Store(tmp_path / "rung.db")
    assert not isinstance(caught.value, (StoreBlocked, sqlite3.Error))
