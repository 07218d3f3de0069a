"""Tests lost connections: they are reported soon, do not block others, and are restored automatically."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import EngineError, HostRefused, HostUnreachable
from rung.jobs.model.host import Host
from rung.runner.ssh import dial, transport
from rung.runner.ssh.connection import Connection
from rung.runner.ssh.remote import SshRemote
from rung.runner.ssh.transport import KeepalivePacketizer, Transport
from tests.support.sshd import Sshd

NewSshd = Callable[..., Sshd]
Reach = Callable[..., SshRemote]
LONG = 180.0


class GoneWithItsJumpHost:
    """A socket that is a channel of a connection which is gone: paramiko raises when it is closed."""

    def close(self) -> None:
        raise EOFError


def test_a_connection_whose_jump_host_is_gone_closes_without_an_error() -> None:
    """It ended paramiko's thread before those who wait for an answer were woken."""
    KeepalivePacketizer(GoneWithItsJumpHost()).close()


def alive(remote: SshRemote) -> bool:
    try:
        return remote.run(["true"], timeout=LONG).code == 0
    except HostUnreachable:
        return False


def reason(remote: SshRemote) -> str:
    """Return why a host is unreachable."""
    with pytest.raises(HostUnreachable) as raised:
        remote.run(["true"], timeout=LONG)
    return str(raised.value)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> float:
    """Shorten the time limits of a silent connection, so that tests are fast; return the longest silence."""
    monkeypatch.setattr(transport, "ASK_SECONDS", 2.0)
    monkeypatch.setattr(transport, "SILENCE_SECONDS", 4.0)
    monkeypatch.setattr(dial, "STEP_SECONDS", 2.0)
    return transport.SILENCE_SECONDS


def keepers(name: str = "titan1") -> int:
    return sum(thread.name == f"keeper of {name}" for thread in threading.enumerate())


@pytest.fixture
def mute(tmp_path: Path) -> Iterator[str]:
    """Start a UNIX socket server that accepts connections and never sends anything."""
    path = str(tmp_path / "mute.sock")
    taken: list[socket.socket] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(50)

    def serve() -> None:
        while True:
            try:
                taken.append(listener.accept()[0])
            except OSError:
                return

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    yield path
    listener.shutdown(socket.SHUT_RDWR)
    server.join()
    listener.close()
    for one in taken:
        one.close()


class Waiting:
    """Threads that wait for a host: in a read from a socket, and for the end of a command."""

    def __init__(self, remote: SshRemote, path: str) -> None:
        self._pool = ThreadPoolExecutor(4)
        opened = remote.open_socket(path)
        self._waits = [
            self._pool.submit(opened.recv, 1),
            self._pool.submit(remote.open_socket(path).recv, 1000),
            self._pool.submit(remote.run, ["sleep", "1000"], timeout=1000),
        ]

    def end(self) -> list[BaseException | None]:
        ends = [wait.exception(LONG) for wait in self._waits]
        self._pool.shutdown()
        return ends


# Killed and restarted


def test_a_host_that_is_killed_is_unreachable_at_once_and_reconnected_when_it_is_back(
    sshd: Sshd, titan: SshRemote, mute: str, wait_until: Any
) -> None:
    assert alive(titan)
    waiting = Waiting(titan, mute)
    sshd.kill()
    assert [type(end) for end in waiting.end()] == [HostUnreachable] * 3
    why = f"titan1: 127.0.0.1:{sshd.port} does not answer: Connection refused"
    wait_until(lambda: reason(titan) == why, LONG)
    # A call to an unreachable host does not wait: with a wait each, thousands of calls would take hours.
    assert not any(alive(titan) for _ in range(2000))
    assert keepers() == 1
    sshd.start()
    wait_until(lambda: alive(titan), LONG)
    assert keepers() == 1


def test_a_lost_connection_is_opened_again_at_once_and_calls_wait_for_it(
    sshd: Sshd, titan: SshRemote, wait_until: Any
) -> None:
    assert alive(titan)
    first = titan.connection.transport()
    sshd.drop()
    wait_until(lambda: titan.connection.transport() is not first, LONG)
    assert titan.run(["echo", "back"], timeout=LONG).out == b"back\n"


def test_open_files_raise_unreachable_when_the_host_is_killed(sshd: Sshd, titan: SshRemote, tmp_path: Path) -> None:
    with titan.files() as files:
        sshd.kill()
        with pytest.raises(HostUnreachable):
            files.stat("/")
        with pytest.raises(HostUnreachable):
            files.write(str(tmp_path / "x"), [b"x"], 0o600)
        with pytest.raises(HostUnreachable):
            files.read("/etc/passwd", 0, 10)


# Frozen and thawed


def test_a_frozen_host_becomes_unreachable_and_is_reconnected_when_it_thaws(
    sshd: Sshd, titan: SshRemote, mute: str, wait_until: Any, impatient: float
) -> None:
    assert alive(titan)
    waiting = Waiting(titan, mute)
    sshd.freeze()
    assert [type(end) for end in waiting.end()] == [HostUnreachable] * 3
    assert not alive(titan)
    sshd.thaw()
    wait_until(lambda: alive(titan), LONG)


def test_a_host_that_freezes_during_a_write_becomes_unreachable(
    sshd: Sshd, titan: SshRemote, mute: str, impatient: float
) -> None:
    assert alive(titan)
    sshd.freeze()
    with pytest.raises(HostUnreachable):
        titan.run(["cat"], b"x" * 100_000_000, timeout=LONG)


def test_an_idle_connection_stays_open(sshd: Sshd, titan: SshRemote, mute: str, impatient: float) -> None:
    """The host sends no data for longer than the limit; on one socket only the client sends."""
    kept, opened = titan.connection.transport(), titan.open_socket(mute)
    end = time.monotonic() + impatient * 1.5
    while time.monotonic() < end:
        opened.sendall(b"x")
        time.sleep(1.0)  # there is no condition to wait for: nothing may happen in this time
    assert titan.connection.transport() is kept
    assert sshd.count_in_log("Accepted publickey") == 1


def test_a_host_without_an_ssh_banner_is_unreachable_and_tried_by_one_thread_at_a_time(
    reach: Reach, wait_until: Any, impatient: float
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken: list[socket.socket] = []
        ended: list[bytes] = []

        def serve() -> None:
            while True:
                try:
                    taken.append(listener.accept()[0])
                except OSError:
                    return
                # Reads until the client gives up; a second client would have to wait here.
                with taken[-1] as one:
                    while one.recv(1000):
                        pass
                    ended.append(b"")

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        remote = reach(Host("titan1", "127.0.0.1", "root", listener.getsockname()[1]))
        with ThreadPoolExecutor(20) as pool:
            assert not any(pool.map(lambda number: alive(remote), range(40)))
        assert keepers() == 1
        with pytest.raises(HostUnreachable, match="does not greet as an SSH server"):
            remote.run(["true"], timeout=LONG)
        wait_until(lambda: len(ended) >= 2, LONG)
        remote.close()
        listener.shutdown(socket.SHUT_RDWR)
        server.join(LONG)
    assert not server.is_alive()


def test_a_server_that_sends_nonsense_is_unreachable_and_harms_nothing(reach: Reach) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            answers = [
                b"HTTP/1.1 400 no\r\n\r\n",
                b"SSH-2.0-x\r\n" + os.urandom(5000),
                b"SSH-2.0-\x1b[31m\xff\r\n\0\0\0\0",
            ]
            for number in range(1000):
                try:
                    with listener.accept()[0] as one:
                        one.sendall(answers[number % 3])
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        remote = reach(Host("titan1", "127.0.0.1", "root", listener.getsockname()[1]))
        messages = set()
        while len(messages) < 2:
            with pytest.raises(HostUnreachable) as raised:
                remote.run(["true"], timeout=LONG)
            messages.add(str(raised.value))
        assert all(text.isprintable() and len(text) < 1000 for text in messages)
        remote.close()
        listener.shutdown(socket.SHUT_RDWR)


def test_a_name_that_does_not_resolve_is_unreachable(reach: Reach) -> None:
    with pytest.raises(HostUnreachable, match=r"no\.such\.host\.invalid:22 does not answer"):
        reach(Host("titan1", "no.such.host.invalid")).run(["true"], timeout=LONG)


# Refused, closed, rekeyed


def test_a_host_that_refuses_the_login_is_not_tried_again(new_sshd: NewSshd, reach: Reach) -> None:
    server = new_sshd().start()
    remote = reach(server)
    for _ in range(100):
        with pytest.raises(HostRefused):
            remote.run(["true"], timeout=LONG)
    assert server.count_in_log("Connection from") <= 1


def test_closing_ends_every_wait_and_the_thread(titan: SshRemote, mute: str, wait_until: Any) -> None:
    waiting = Waiting(titan, mute)
    titan.close()
    assert all(isinstance(end, HostUnreachable) for end in waiting.end())
    with pytest.raises(HostUnreachable, match="closed by us"):
        titan.run(["true"], timeout=LONG)
    wait_until(lambda: keepers() == 0, LONG)


def test_closing_an_unreachable_host_ends_the_retries(wait_until: Any) -> None:
    tries = []

    def dial() -> Transport:
        tries.append(1)
        raise HostUnreachable("away")

    connection = Connection("elsewhere", dial)
    with pytest.raises(HostUnreachable, match="away"):
        connection.transport()
    wait_until(lambda: len(tries) > 2, LONG)
    connection.close()
    wait_until(lambda: keepers("elsewhere") == 0, LONG)


def test_no_data_is_lost_when_keys_are_exchanged_again_under_load(new_sshd: NewSshd, reach: Reach) -> None:
    server = new_sshd("RekeyLimit 256K", "LogLevel DEBUG")
    server.introduce()
    remote = reach(server.start())
    data = os.urandom(900_000)
    with ThreadPoolExecutor(6) as pool:
        ran = list(pool.map(lambda number: remote.run(["cat"], data, timeout=LONG), range(12)))
    assert all(one.out == data for one in ran)
    assert server.count_in_log("rekeying") > 20
    assert server.count_in_log("Accepted publickey") == 1


def test_closed_channels_are_released(titan: SshRemote, mute: str, wait_until: Any) -> None:
    transport: Any = titan.connection.transport()

    def held() -> tuple[int, int, int]:
        return len(transport._channels), len(transport.channel_events), len(transport.channels_seen)

    before, files = held(), len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(100):
        titan.open_socket(mute).close()
        with pytest.raises(EngineError):
            titan.open_socket("/no/such.sock")
    for _ in range(5):
        titan.run(["true"], timeout=LONG)
    wait_until(lambda: held() == before, LONG)
    assert transport._refusals == {}
    wait_until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= files + 100, LONG)  # the mute server's ends


# Jump hosts


def test_a_dead_jump_host_is_named_and_reconnected_when_it_is_back(
    sshd: Sshd, new_sshd: NewSshd, reach: Reach, wait_until: Any
) -> None:
    gate = new_sshd()
    gate.introduce()
    gate.start()
    remote = reach(sshd.host(jump="gate"), gate.host("gate"))
    assert alive(remote)
    gate.kill()
    wait_until(lambda: not alive(remote), LONG)
    wait_until(lambda: reason(remote).startswith("titan1: its jump host: gate: "), LONG)
    gate.start()
    wait_until(lambda: alive(remote), LONG)


def test_a_host_that_its_jump_host_cannot_reach_is_distinguished_from_a_dead_jump_host(
    sshd: Sshd, new_sshd: NewSshd, reach: Reach
) -> None:
    gone = new_sshd()
    gone.introduce()
    with pytest.raises(HostUnreachable, match=r"titan1: jump host gate cannot reach 127\.0\.0\.1:\d+"):
        reach(gone.host(jump="gate"), sshd.host("gate")).run(["true"], timeout=LONG)
