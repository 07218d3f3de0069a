"""Tests that a RUNG_HOME that others may change is refused. 0.1.0 took any folder, and `rung check` called it ok."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import StoreError
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.runner.state.home import home_problem, make_home, refuse_shared_home
from tests.support.stored_jobs import submitted

Rung = Callable[..., Any]
NOBODY = 65534


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702, 0o1777])
def test_a_home_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    home = tmp_path / "a home"
    home.mkdir()
    home.chmod(mode)
    with pytest.raises(StoreError, match=rf"^{home}: other users may write to it; .*: chmod go-w '{home}'$"):
        make_home(HomePaths(home))
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("name", ["rung.db", "controller.lock", "secrets"])
def test_a_store_or_a_secret_that_others_may_write_to_is_refused_where_they_can_reach_it(
    tmp_path: Path, name: str
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    (home / name).touch()
    (home / name).chmod(0o664)
    with pytest.raises(StoreError, match=rf"{name}: other users may write to it"):
        refuse_shared_home(HomePaths(home))
    # A store of 0.1.0 where every user has a group of their own: it is 0664 in a home that is 0700.
    home.chmod(0o700)
    refuse_shared_home(HomePaths(home))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_home_of_another_user_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    assert home_problem(HomePaths(home)) == (
        f"{home}: belongs to another user (uid {NOBODY}); set RUNG_HOME to a folder of yours"
    )


def test_every_command_refuses_it_in_one_line_and_check_says_the_same(home: Path, tmp_path: Path, rung: Rung) -> None:
    submitted(home, JobState.LAUNCHING)
    home.chmod(0o777)
    problem = f"{home}: other users may write to it; forbid that with: chmod go-w {home}"
    (tmp_path / "job.yaml").write_text("name: a\nrun: 'true'\n", encoding="utf-8")
    for words in (["queue"], ["launch", tmp_path / "job.yaml"], ["controller", "--until-idle"], ["ladder"]):
        ran = rung(*words)
        assert (ran.code, ran.out, ran.err) == (2, "", f"rung: {problem}\n")
    checked = rung("check", env={"RUNG_HOSTS": "/dev/null"})
    assert checked.code == 1
    assert f"BAD {problem}" in checked.out
    home.chmod(0o755)
    assert rung("queue").code == 0


def test_what_rung_writes_is_private_and_what_a_job_writes_has_the_users_own_mode(
    home: Path, tmp_path: Path, rung: Rung
) -> None:
    """0.1.0 wrote its store and logs with the umask of its shell."""
    made = tmp_path / "made"
    (tmp_path / "job.yaml").write_text(f"name: a\nrun: touch {made}\n", encoding="utf-8")
    before = os.umask(0o022)
    try:
        rung("launch", "-f", tmp_path / "job.yaml")
    finally:
        os.umask(before)
    for path in (home, home / "rung.db", home / "controller.lock", home / "jobs"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    assert stat.S_IMODE(made.stat().st_mode) == 0o644
