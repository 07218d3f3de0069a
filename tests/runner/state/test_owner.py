"""Tests that the controller's process is found by the lock that it holds, and that no other one is ever stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import ControllerError
from rung.jobs.model.paths import HomePaths
from rung.runner.state.lock import is_owned, named_pid, ownership, was_stopped
from rung.runner.state.owner import find_owner, stop_owner
from tests import pace

Spawn = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def test_the_owner_is_found_with_its_time_and_environment(tmp_path: Path) -> None:
    paths = HomePaths(tmp_path)
    assert find_owner(paths) is None
    with ownership(paths):
        owner = find_owner(paths)
        assert owner is not None and owner.pid == os.getpid()
        assert owner.environ()["PATH"]
        assert 0 < time.time() - owner.since < 24 * 3600
    assert find_owner(paths) is None and named_pid(paths) == os.getpid()


def test_a_controller_is_stopped_and_has_ended_then(home: Path, spawn: Spawn, wait_until: Callable[..., Any]) -> None:
    paths, controller = HomePaths(home), spawn("controller")
    wait_until(lambda: home.exists() and find_owner(paths))
    assert stop_owner(paths) == controller.pid
    assert not is_owned(paths) and pace.wait(controller, 5) == 0
    assert stop_owner(paths) is None


STOPPED_AT_ONCE = """
import os, signal, sys
from rung.runner.cli.main import main
from rung.runner.state import lock

def put_note(paths, text, put=lock.put_note):
    # Its lock is held from here on.
    put(paths, text)
    if not text:
        os.kill(os.getpid(), signal.SIGTERM)

lock.put_note = put_note
sys.argv = ["rung", "controller"]
main()
"""


def test_a_controller_that_is_stopped_as_soon_as_it_has_the_lock_ends_well(home: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", STOPPED_AT_ONCE], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "controller stopped" in ended.stdout
    assert was_stopped(HomePaths(home))


# The first turn asks to stop where Python drops an exception: while it removes an object.
STOPPED_WHERE_EXCEPTIONS_ARE_DROPPED = """
import os, signal, sys, weakref
from rung.runner.cli.main import main
from rung.runner.controller.controller import Controller

class Thing:
    pass

def turn(self, turn=Controller.turn, watched=[]):
    if not watched:
        thing = Thing()
        watched.append(weakref.ref(thing, lambda reference: os.kill(os.getpid(), signal.SIGTERM)))
        del thing
    return turn(self)

Controller.turn = turn
sys.argv = ["rung", "controller"]
main()
"""
# A turn that never ends: the first request waits for its end, the second does not.
STOPPED_TWICE = """
import os, signal, sys, time
from rung.runner.cli.main import main
from rung.runner.controller.controller import Controller

def turn(self):
    os.kill(os.getpid(), signal.SIGTERM)
    print("asked once", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1000)

Controller.turn = turn
sys.argv = ["rung", "controller"]
main()
"""


@pytest.mark.parametrize(
    ("program", "first"), [(STOPPED_WHERE_EXCEPTIONS_ARE_DROPPED, ""), (STOPPED_TWICE, "asked once")]
)
def test_a_controller_that_is_asked_to_stop_at_any_moment_ends_well(program: str, first: str, home: Path) -> None:
    ended = pace.run([sys.executable, "-c", program], capture_output=True, text=True, usual=30)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert first in ended.stdout and "controller stopped" in ended.stdout
    assert was_stopped(HomePaths(home))


BLOCKED_WHEN_STOPPED = """
import os, signal, sys
from rung.jobs.model.errors import StoreBlocked
from rung.runner.cli.main import main
from rung.runner.controller.controller import Controller

def turn(self):
    os.kill(os.getpid(), signal.SIGTERM)
    raise StoreBlocked("another process holds the store")

Controller.turn = turn
sys.argv = ["rung", "controller"]
main()
"""


def test_a_controller_that_is_stopped_while_its_store_is_blocked_ends_well(home: Path) -> None:
    ended = pace.run([sys.executable, "-c", BLOCKED_WHEN_STOPPED], capture_output=True, text=True, usual=30)
    assert ended.returncode == 0 and "controller stopped" in ended.stdout
    assert "the controller pauses: another process holds the store" in ended.stderr
    assert was_stopped(HomePaths(home))


def test_a_process_that_only_has_the_pid_of_the_lock_is_not_taken_for_the_controller(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    paths = HomePaths(tmp_path)
    with ownership(paths):
        paths.lock.write_text(str(stranger.pid))
        assert is_owned(paths) and find_owner(paths) is None
        with pytest.raises(ControllerError, match="cannot be seen from here"):
            stop_owner(paths)
    assert stop_owner(paths) is None
    assert stranger.poll() is None


@pytest.mark.parametrize("text", ["", "\n", "x", "-1", "0", "99999999999999999999", "\x00\xff"])
def test_a_lock_file_that_names_nobody(text: str, tmp_path: Path) -> None:
    paths = HomePaths(tmp_path)
    with ownership(paths):
        paths.lock.write_text(text)
        assert find_owner(paths) is None
