"""Gives the tests of this folder real hosts (sshd on the loopback), an empty SSH home, and the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.host import Host
from rung.runner.cli.main import main
from rung.runner.ssh.remote import Remotes, SshRemote
from tests.support.background import Watched
from tests.support.sshd import Sshd


@pytest.fixture
def client_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home folder for SSH: no key, agent or config of the user is used."""
    folder = tmp_path / "client"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    for name in ("SSH_AUTH_SOCK", "RUNG_KNOWN_HOSTS", "RUNG_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def new_sshd(tmp_path: Path, client_home: Path) -> Iterator[Callable[..., Sshd]]:
    """Return a function that makes an sshd and does not start it; all of them end with the test."""
    made: list[Sshd] = []

    def make(*settings: str, host_keys: tuple[str, ...] = ("ed25519",)) -> Sshd:
        made.append(Sshd(tmp_path / f"sshd{len(made)}", client_home, host_keys, settings))
        return made[-1]

    yield make
    for server in made:
        server.thaw()
        server.kill()


@pytest.fixture
def sshd(new_sshd: Callable[..., Sshd]) -> Sshd:
    """Return a running sshd; its key is in known_hosts."""
    server = new_sshd()
    server.introduce()
    return server.start()


@pytest.fixture
def reach(client_home: Path) -> Iterator[Callable[..., SshRemote]]:
    """Return a function that connects to the first of the given hosts; the others can be its jump hosts."""
    made: list[Remotes] = []

    def remote(*hosts: Host | Sshd) -> SshRemote:
        listed = [host if isinstance(host, Host) else host.host() for host in hosts]
        made.append(Remotes(listed, client_home, os.environ))
        return made[-1].remote(listed[0].name)

    yield remote
    for remotes in made:
        remotes.close()


@pytest.fixture
def titan(sshd: Sshd, reach: Callable[..., SshRemote]) -> SshRemote:
    return reach(sshd)


@pytest.fixture
def run_rung(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Return a function that runs the command line in this process: exit code, output, errors."""

    def run(*args: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rung", *map(str, args)])
        code = 0
        umask = os.umask(0o022)
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        finally:
            os.umask(umask)
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


@pytest.fixture
def watched(home: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> Iterator[Watched]:
    """Return a home in which commands start controllers in the background; all of them end with the test."""
    monkeypatch.setenv("RUNG_CONTROLLER", "auto")
    made = Watched(home, wait_until)
    yield made
    made.close()
