"""Tests that one controller owns a store, and that its death frees the store."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import StoreError, StoreOwned
from rung.jobs.model.paths import HomePaths
from rung.runner.state.lock import is_owned, ownership
from tests import pace

Rung = Callable[..., Any]
Spawn = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def paths(tmp_path: Path) -> HomePaths:
    return HomePaths(tmp_path)


def test_the_lock_has_one_owner_and_the_error_names_its_pid(paths: HomePaths) -> None:
    assert not is_owned(paths)
    with ownership(paths):
        assert is_owned(paths)
        with pytest.raises(StoreOwned, match=f"already running \\(pid {os.getpid()}\\)"), ownership(paths):
            pytest.fail("two owners")
        assert is_owned(paths)  # a refused request does not change the owner
    assert not is_owned(paths)
    with ownership(paths):
        assert paths.lock.read_text(encoding="ascii") == str(os.getpid())


def test_is_owned_writes_nothing(paths: HomePaths) -> None:
    assert not is_owned(paths)
    assert list(paths.home.iterdir()) == []


def test_is_owned_does_not_block_the_lock(paths: HomePaths) -> None:
    with ownership(paths):
        pass
    with paths.lock.open("rb"):
        assert not is_owned(paths)
        with ownership(paths):
            assert is_owned(paths)


def test_a_lock_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "controller.lock").mkdir()
    with (
        pytest.raises(StoreError, match=r"controller\.lock: cannot be opened: Is a directory"),
        ownership(HomePaths(tmp_path)),
    ):
        pytest.fail("not owned")


def test_a_second_controller_exits_with_a_message_and_a_killed_one_frees_the_store(
    home: Path, rung: Rung, spawn: Spawn, wait_until: Callable[..., Any]
) -> None:
    first = spawn("controller")
    wait_until(lambda: home.exists() and is_owned(HomePaths(home)))
    second = rung("controller")
    assert (second.code, second.out) == (2, "")
    assert second.err == (
        f"rung: {home}: a controller is already running (pid {first.pid}); "
        "use that one, stop it with `rung controller --stop`, or set RUNG_HOME to another folder\n"
    )
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not is_owned(HomePaths(home))
    third = rung("controller", "--until-idle")
    assert third.code == 0
    assert "jobs=0" in third.out


def test_a_controller_ends_with_exit_code_0_on_term(home: Path, spawn: Spawn, wait_until: Callable[..., Any]) -> None:
    controller = spawn("controller")
    assert controller.stdout is not None
    assert controller.stdout.readline().startswith(f"controller pid={controller.pid} home={home} jobs=0".encode())
    controller.send_signal(signal.SIGTERM)
    assert pace.wait(controller, 20) == 0
