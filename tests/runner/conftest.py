"""Lets the tests of this folder reach real hosts: sshd on the loopback, and a home with nothing of the user's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rung.jobs.model.host import Host
from rung.runner.ssh.remote import Remotes, SshRemote
from tests.support.sshd import Sshd


@pytest.fixture
def client_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home folder of its own for everything SSH: no key, no agent, no config of the user's counts."""
    folder = tmp_path / "client"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    for name in ("SSH_AUTH_SOCK", "RUNG_KNOWN_HOSTS", "RUNG_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def new_sshd(tmp_path: Path, client_home: Path) -> Iterator[Callable[..., Sshd]]:
    """Return a function that makes an sshd which is not yet started; all end with the test."""
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
    """Return a running sshd whose key is known."""
    server = new_sshd()
    server.introduce()
    return server.start()


@pytest.fixture
def reach(client_home: Path) -> Iterator[Callable[..., SshRemote]]:
    """Return a function that gives the remote of the first of some hosts; the others may be its jump hosts."""
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
