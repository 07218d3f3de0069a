"""Tests the controller as a systemd service of a user: its unit, and what is written and run to install it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import ControllerError
from rung.jobs.model.paths import HomePaths
from rung.runner.session.service import service_environment, unit_path, unit_text
from rung.runner.state.lock import is_owned

Rung = Callable[..., Any]
COMMAND = ["/opt/a b/100%$/python", "-P", "-m", "rung.runner.cli.main", "$x"]
ENVIRONMENT = {"RUNG_HOME": "/home/me/state %h", "PATH": '/opt/"quoted"/bin:/back\\slash:/usr/bin', "CUDA_HOME": "$X"}


def test_the_unit_keeps_every_character_of_its_words_and_ends_no_job() -> None:
    lines = unit_text(COMMAND, ENVIRONMENT, 0o027).splitlines()
    assert [line for line in lines if line.startswith(("Environment", "Exec", "UMask"))] == [
        'Environment="CUDA_HOME=$X"',
        r'Environment="PATH=/opt/\"quoted\"/bin:/back\\slash:/usr/bin"',
        'Environment="RUNG_HOME=/home/me/state %%h"',
        'ExecStart="/opt/a b/100%%$/python" "-P" "-m" "rung.runner.cli.main" "$$x"',
        "UMask=0027",
    ]
    assert {"KillMode=process", "OOMPolicy=continue", "Restart=on-failure", "WantedBy=default.target"} <= set(lines)


@pytest.mark.parametrize("text", ["a\nExecStart=/bin/evil", "a\0b", "a\x1bb"])
def test_no_value_adds_a_line_to_the_unit(text: str) -> None:
    with pytest.raises(ControllerError, match="a control character cannot be in a unit"):
        unit_text(COMMAND, {"PATH": text}, 0o022)


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    assert shutil.which("systemd-analyze"), "install systemd"
    program = tmp_path / "100% $HOME" / "rung"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "rung.service"
    unit.write_text(unit_text([str(program), "controller"], ENVIRONMENT, 0o022))
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    words = ["systemd-analyze", "--user", "verify", unit]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "rung.service" in line]) == (0, [])


def test_the_service_has_the_settings_and_what_jobs_inherit_and_no_secret(tmp_path: Path) -> None:
    shell = {
        "PATH": "/bin", "VIRTUAL_ENV": "/venv", "HF_TOKEN": "secret", "RUNG_SECRETS": "HF_TOKEN", "HOME": "/home/me",
        "RUNG_HOSTS": "hosts.yml", "RUNG_JOB": "a-1", "SSH_AUTH_SOCK": "/tmp/agent", "PWD": "/x",
    }  # fmt: skip
    assert service_environment(shell, HomePaths(tmp_path)) == {
        "PATH": "/bin", "VIRTUAL_ENV": "/venv", "RUNG_HOME": str(tmp_path),
        "RUNG_HOSTS": str(Path.cwd() / "hosts.yml"),
    }  # fmt: skip


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the user's settings; no service manager of the user who runs the tests is reached."""
    folder = tmp_path / "config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    return folder


@pytest.fixture
def calls(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a systemctl on the PATH that only writes down what it is asked for; return that file."""
    program, said = tmp_path / "bin" / "systemctl", tmp_path / "calls"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(said))}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return said


@pytest.mark.parametrize("path", [None, "/nowhere"])
def test_where_no_systemd_answers_one_line_says_so_and_nothing_is_written(
    path: str | None, config: Path, home: Path, rung: Rung
) -> None:
    ran = rung("controller", "--install", env={"PATH": path} if path else {})
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "systemctl" in ran.err and "`rung launch` starts a controller in the background" in ran.err
    assert not config.exists() and not home.exists()


def test_install_and_uninstall(config: Path, calls: Path, home: Path, rung: Rung, spawn: Any, wait_until: Any) -> None:
    running = spawn("controller")
    wait_until(lambda: home.exists() and is_owned(HomePaths(home)))
    ran = rung("controller", "--install")
    unit = config / "systemd" / "user" / "rung.service"
    assert ran.code == 0 and f"in place of controller pid {running.pid}" in ran.out and str(unit) in ran.out
    assert running.wait() == 0, "the controller makes way for the service"
    assert f'Environment="RUNG_HOME={home}"' in unit.read_text() and unit.stat().st_mode & 0o777 == 0o600
    assert calls.read_text().splitlines() == [
        "--user show-environment", "--user daemon-reload", "--user enable rung.service", "--user restart rung.service",
    ]  # fmt: skip
    assert rung("controller", "--install").code == 0, "the same once more, with what the shell has now"

    other = rung("controller", "--install", env={"RUNG_HOME": str(home.parent / "other")})
    assert other.code == 2 and "is the controller of another RUNG_HOME" in other.err

    calls.unlink()
    ran = rung("controller", "--uninstall")
    assert (ran.code, ran.err) == (0, "") and ran.out.startswith("rung.service is removed; running jobs go on")
    assert not unit.exists()
    assert calls.read_text().splitlines() == ["--user disable --now rung.service", "--user daemon-reload"]
    assert rung("controller", "--uninstall").out == f"no service is installed: there is no {unit}\n"


def test_the_unit_is_where_systemd_looks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert unit_path({}) == Path("/home/me/.config/systemd/user/rung.service")
