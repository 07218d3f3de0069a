"""Implements the Remote interface over SSH, with all requests on one shared connection per host.

Exceptions of paramiko are translated into our own here.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import paramiko

from rung.jobs.model.errors import EngineError, HostError, HostUnreachable
from rung.jobs.model.host import Host
from rung.jobs.model.terminal_text import clean
from rung.runner.seams.remote import CommandResult, Files, socket_path
from rung.runner.ssh.connection import Connection
from rung.runner.ssh.dial import dial
from rung.runner.ssh.sessions import OPEN_SECONDS, Sessions, run_command
from rung.runner.ssh.sftp import SftpFiles
from rung.runner.ssh.ssh_config import SshConfig, Target, last_hop
from rung.runner.ssh.transport import LOST, ChannelRefused, Transport
from rung.runner.ssh.unix_socket import UnixSocket

# How long a caller of files() waits while all sessions are taken.
ROOM_SECONDS = 60.0


class SshRemote:
    """One host over SSH."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self.connection = connection
        self._lock = threading.Lock()
        self._sessions: tuple[Transport | None, Sessions] = (None, Sessions())

    def run(self, argv: Sequence[str], stdin: bytes | None = None, *, timeout: float) -> CommandResult:
        deadline = time.monotonic() + timeout
        with translated_errors(self.name), self._session(deadline) as channel:
            return run_command(channel, argv, stdin, deadline)

    def open_socket(self, path: str) -> UnixSocket:
        transport = self.connection.transport()
        with translated_errors(self.name):
            try:
                channel = transport.open_unix_socket(socket_path(path), OPEN_SECONDS)
            except ChannelRefused as refused:
                raise EngineError(f"{path} does not let us in: {refused}") from None
        return UnixSocket(self.name, channel)

    @contextmanager
    def files(self) -> Iterator[Files]:
        with ExitStack() as session:
            with translated_errors(self.name):
                channel = session.enter_context(self._session(time.monotonic() + ROOM_SECONDS))
            # Not around the caller's code: its errors are not errors of the host.
            yield SftpFiles(channel, lambda: translated_errors(self.name))

    def drop_connection(self) -> None:
        self.connection.drop_connection()

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def _session(self, deadline: float) -> Iterator[paramiko.Channel]:
        transport = self.connection.transport()
        with self._lock:
            if self._sessions[0] is not transport:
                self._sessions = (transport, Sessions())
            sessions = self._sessions[1]
        with sessions.session(transport, deadline) as channel:
            yield channel


class Remotes:
    """The remotes of all hosts, made when first needed; all hosts behind a jump host share its connection."""

    def __init__(self, hosts: Iterable[Host], home: Path, environ: Mapping[str, str]) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._home, self._environ = home, environ
        self._config: SshConfig | None = None
        self._made: dict[str, SshRemote] = {}
        self._lock = threading.RLock()

    def remote(self, name: str) -> SshRemote:
        """Return the remote of a host in the list, or of a path through jump hosts."""
        with self._lock:
            if name not in self._made:
                host = self._hosts.get(name) or self._hop(name)
                self._made[name] = SshRemote(host.name, Connection(host.name, lambda: self._dial(host)))
            return self._made[name]

    def close(self) -> None:
        with self._lock:
            made = list(self._made.values())
        for remote in made:
            remote.close()

    def _hop(self, way: str) -> Host:
        hop = last_hop(way)
        known = self._hosts.get(hop.name)
        return replace(known, jump=hop.jump) if known else hop

    def _dial(self, host: Host) -> Transport:
        target = self._target(host)
        if target.jump is None:
            return dial(target, None)
        try:
            jump = self.remote(target.jump).connection.transport()
        except HostError as error:
            raise type(error)(f"{host.name}: its jump host: {error}") from None
        return dial(target, jump)

    def _target(self, host: Host) -> Target:
        with self._lock:
            if self._config is None:
                self._config = SshConfig(self._home, self._environ)
            return self._config.target(host)


@contextmanager
def translated_errors(host: str) -> Iterator[None]:
    """Translate errors of a request: the host is unreachable, or it answers and the request failed."""
    try:
        yield
    except (EngineError, HostError) as error:
        text = str(error)
        raise type(error)(text if text.startswith(f"{host}: ") else f"{host}: {text}") from None
    except (EOFError, paramiko.SSHException) as error:
        raise HostUnreachable(f"{host}: {LOST}{_detail(error)}") from None
    except OSError as error:
        if error.errno is None and "closed" in str(error):
            raise HostUnreachable(f"{host}: {LOST}") from None
        what = error.strerror or str(error) or "it failed"
        raise EngineError(f"{host}: {clean(what)}") from None
    except (ValueError, IndexError, struct.error, paramiko.SFTPError) as error:
        # A host may send anything.
        raise EngineError(f"{host}: its answer is not understood: {clean(str(error))[:200]}") from None


def _detail(error: Exception) -> str:
    text = clean(str(error))
    return f": {text}" if text and text != LOST else ""
