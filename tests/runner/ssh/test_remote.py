"""Tests the Remote interface over a real sshd: commands, files and sockets, all on one connection."""

from __future__ import annotations

import hashlib
import os
import shlex
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import paramiko
import pytest
from paramiko.common import cMSG_CHANNEL_EOF

from rung.jobs.model.errors import EngineError, HostUnreachable
from rung.runner.seams.remote import (
    COMMAND_BYTES,
    OUTPUT_BYTES,
    CommandResult,
    Files,
    Remote,
    RemoteSocket,
    command_line,
    socket_path,
)
from rung.runner.ssh.remote import SshRemote
from tests import pace
from tests.support.sshd import Sshd

NASTY = [
    "plain",
    "",
    "; rm -rf /",
    "$(touch pwned)",
    "`touch pwned`",
    "a b\tc",
    "it's",
    'say "no"',
    "line\nbreak\n",
    "back\\slash",
    "*",
    "~",
    "!!",
    "-rf",
    "&& false",
    "\x1b[31m",
    "héé ☃",
    "${HOME}",
    "#",
    "\udcff",
]


class Echo(socketserver.StreamRequestHandler):
    """Sends everything back until the other side ends."""

    def handle(self) -> None:
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    # Many connect at the same moment.
    request_queue_size = 200


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Return a function that starts a UNIX socket server in this process and gives its path."""
    servers: list[Server] = []

    def start(handler: type[socketserver.BaseRequestHandler] = Echo) -> str:
        path = str(tmp_path / f"s{len(servers)}.sock")
        servers.append(Server(path, handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return path

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def connections(server: Sshd) -> int:
    return server.count_in_log("Connection from 127.0.0.1")


def read_all(opened: RemoteSocket) -> bytes:
    return b"".join(iter(lambda: opened.recv(65536), b""))


# Commands


def test_a_command_gives_its_code_its_output_and_its_errors(titan: SshRemote) -> None:
    ran = titan.run(["sh", "-c", "cat; echo oops >&2; exit 7"], b"in\0put\xff", timeout=pace.seconds(60))
    assert ran == CommandResult(7, b"in\0put\xff", b"oops\n")


def test_the_remote_implements_the_protocols(titan: SshRemote, serve: Callable[..., str]) -> None:
    remote: Remote = titan
    with remote.files() as files:
        there: Files = files
        assert there.stat("/") is not None
    opened: RemoteSocket = remote.open_socket(serve())
    opened.close()


def test_every_argument_arrives_unchanged_and_the_shell_runs_none_of_it(titan: SshRemote, client_home: Path) -> None:
    before = sorted(Path.cwd().iterdir())
    ran = titan.run(["printf", "%s\\0", *NASTY], timeout=pace.seconds(60))
    assert ran.code == 0
    assert ran.out.split(b"\0")[:-1] == [os.fsencode(word) for word in NASTY]
    assert titan.run(["ls", "pwned"], timeout=pace.seconds(60)).code != 0
    assert sorted(Path.cwd().iterdir()) == before


def test_every_argument_is_quoted() -> None:
    assert command_line(["echo", "a'b; c"]) == b"echo 'a'\"'\"'b; c'"
    assert [os.fsencode(word) for word in shlex.split(os.fsdecode(command_line(NASTY)))] == list(
        map(os.fsencode, NASTY)
    )


@pytest.mark.parametrize("argv", [[], ["a\0b"], ["x" * (COMMAND_BYTES + 1)], ["x", "'" * (COMMAND_BYTES // 2)]])
def test_a_command_that_cannot_be_sent_is_refused(argv: list[str]) -> None:
    with pytest.raises(EngineError):
        command_line(argv)


def test_the_longest_command_arrives(titan: SshRemote) -> None:
    word = "x" * (COMMAND_BYTES - len("printf %s "))
    assert titan.run(["printf", "%s", word], timeout=pace.seconds(60)).out == word.encode()


def test_fifty_megabytes_of_input_and_output_are_complete(titan: SshRemote) -> None:
    data = os.urandom(50_000_000)
    ran = titan.run(["sha256sum"], data, timeout=pace.seconds(180))
    assert ran.out.split()[0].decode() == hashlib.sha256(data).hexdigest()
    both = titan.run(["sh", "-c", "tee /dev/stderr | sha256sum >&2; echo done"], data, timeout=pace.seconds(180))
    assert (both.code, both.out, len(both.err)) == (0, b"done\n", OUTPUT_BYTES)


def test_only_the_beginning_of_endless_output_is_kept(titan: SshRemote) -> None:
    ran = titan.run(["head", "-c", "50000000", "/dev/zero"], timeout=pace.seconds(180))
    assert (ran.code, len(ran.out)) == (0, OUTPUT_BYTES)


def test_a_command_that_ends_by_a_signal_is_distinguished_from_one_that_exits(titan: SshRemote) -> None:
    assert titan.run(["sh", "-c", "kill -9 $$"], timeout=pace.seconds(60)).code == -1


def test_a_command_that_closes_its_output_is_waited_for(titan: SshRemote) -> None:
    assert titan.run(["sh", "-c", "exec >&- 2>&-; sleep 0.3; exit 5"], timeout=pace.seconds(60)).code == 5


def test_input_that_the_command_does_not_read_does_not_block(titan: SshRemote) -> None:
    for _ in range(20):
        assert titan.run(["sh", "-c", "exit 3"], b"x" * 10_000_000, timeout=pace.seconds(60)).code == 3


def test_a_command_that_times_out_ends_and_the_connection_stays_open(titan: SshRemote, sshd: Sshd) -> None:
    with pytest.raises(EngineError, match=r"titan1: sleep: took too long; it may still be running there") as raised:
        titan.run(["sleep", "1000"], timeout=0.5)
    assert not isinstance(raised.value, HostUnreachable)
    assert titan.run(["echo", "still here"], timeout=pace.seconds(60)).out == b"still here\n"
    assert connections(sshd) == 1


# Many at once


def test_many_threads_share_one_connection(titan: SshRemote, sshd: Sshd, serve: Callable[..., str]) -> None:
    path = serve()

    def ask(number: int) -> bytes:
        if number % 3 == 0:
            return titan.run(["cat"], str(number).encode(), timeout=pace.seconds(180)).out
        if number % 3 == 1:
            with titan.files() as files:
                assert files.stat("/") is not None
                return str(number).encode()
        opened = titan.open_socket(path)
        opened.sendall(str(number).encode())
        opened.shutdown(socket.SHUT_WR)
        return read_all(opened)

    with ThreadPoolExecutor(60) as pool:
        assert list(pool.map(ask, range(120))) == [str(number).encode() for number in range(120)]
    assert connections(sshd) == 1
    assert sshd.count_in_log("Accepted publickey") == 1


def test_a_command_that_ends_early_disturbs_no_session_after_it(
    titan: SshRemote, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The late end of its input would be that of the next session with its number, or end the connection."""
    send = paramiko.Transport._send_user_message  # type: ignore[attr-defined]

    def send_late(transport: paramiko.Transport, message: paramiko.Message) -> None:
        if message.asbytes()[:1] == cMSG_CHANNEL_EOF:
            time.sleep(0.5)
        send(transport, message)

    monkeypatch.setattr(paramiko.Transport, "_send_user_message", send_late)

    def ask(number: int) -> bytes:
        if number % 2:
            return titan.run(["true"], timeout=pace.seconds(60)).out
        return titan.run(["cat"], str(number).encode(), timeout=pace.seconds(60)).out

    with ThreadPoolExecutor(6) as pool:
        expected = [b"" if number % 2 else str(number).encode() for number in range(36)]
        assert list(pool.map(ask, range(36))) == expected
    assert sshd.count_in_log("Accepted publickey") == 1


def test_few_sessions_are_shared_and_sockets_do_not_count(
    new_sshd: Callable[..., Sshd], reach: Callable[..., SshRemote], serve: Callable[..., str]
) -> None:
    server = new_sshd("MaxSessions 2")
    server.introduce()
    remote, path = reach(server.start()), serve()
    opened = [remote.open_socket(path) for _ in range(50)]
    with ThreadPoolExecutor(8) as pool:
        ran = list(pool.map(lambda number: remote.run(["echo", str(number)], timeout=pace.seconds(180)).out, range(16)))
    assert ran == [f"{number}\n".encode() for number in range(16)]
    # Commands without a session wait for one; they do not keep asking the server.
    assert server.count_in_log("no more sessions") < 3000
    for number, one in enumerate(opened):
        one.sendall(b"%d" % number)
    assert [one.recv(100) for one in opened] == [b"%d" % number for number in range(50)]
    assert connections(server) == 1


def test_a_host_that_opens_no_session_is_distinguished_from_an_unreachable_one(
    new_sshd: Callable[..., Sshd], reach: Callable[..., SshRemote]
) -> None:
    server = new_sshd("MaxSessions 0")
    server.introduce()
    with pytest.raises(EngineError, match=r"opens no further session .* raise MaxSessions") as raised:
        reach(server.start()).run(["true"], timeout=1)
    assert not isinstance(raised.value, HostUnreachable)


# Sockets


def test_a_socket_carries_bytes_both_ways_and_ends_when_the_other_side_does(
    titan: SshRemote, serve: Callable[..., str]
) -> None:
    opened = titan.open_socket(serve())
    data = os.urandom(5_000_000)
    sender = threading.Thread(target=lambda: (opened.sendall(data), opened.shutdown(socket.SHUT_WR)))
    sender.start()
    assert read_all(opened) == data
    sender.join()
    assert opened.recv(10) == b""


def test_a_missing_socket_is_an_error_and_the_host_stays_reachable(titan: SshRemote, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"titan1: /nowhere/x\.sock does not let us in") as raised:
        titan.open_socket("/nowhere/x.sock")
    assert not isinstance(raised.value, HostUnreachable)
    assert titan.run(["true"], timeout=pace.seconds(60)).code == 0


@pytest.mark.parametrize("path", ["relative.sock", "", "/x" * 60, "/a\0b"])
def test_a_path_that_no_socket_can_have_is_refused(path: str) -> None:
    with pytest.raises(EngineError, match="no socket can have this path"):
        socket_path(path)


def test_a_waiting_read_ends_when_another_thread_closes_the_socket(titan: SshRemote, serve: Callable[..., str]) -> None:
    opened, got = titan.open_socket(serve()), []
    reader = threading.Thread(target=lambda: got.append(opened.recv(10)))
    reader.start()
    opened.shutdown(socket.SHUT_RDWR)
    reader.join(pace.seconds(60))
    assert got == [b""]


def test_a_timeout_on_a_socket_is_a_timeout(titan: SshRemote, serve: Callable[..., str]) -> None:
    opened = titan.open_socket(serve())
    opened.settimeout(0.05)
    with pytest.raises(TimeoutError):
        opened.recv(10)


def test_writing_to_a_socket_that_the_other_side_closed_is_an_error(
    titan: SshRemote, serve: Callable[..., str], wait_until: Any
) -> None:
    class Deaf(socketserver.BaseRequestHandler):
        pass

    opened = titan.open_socket(serve(Deaf))
    assert opened.recv(10) == b""

    def refused() -> bool:
        try:
            opened.sendall(b"x")
        except BrokenPipeError:
            return True
        return False

    wait_until(refused, 120)


# Files


def test_a_file_is_written_with_its_mode_and_read_from_any_offset(titan: SshRemote, tmp_path: Path) -> None:
    path, data = tmp_path / "it's; a $(file)\n", os.urandom(3_000_000)
    with titan.files() as files:
        files.write(str(path), (data[at : at + 1_000_000] for at in range(0, len(data), 1_000_000)), 0o640)
        assert path.read_bytes() == data
        assert path.stat().st_mode & 0o7777 == 0o640
        assert files.read(str(path), 0, 10_000_000) == data
        assert files.read(str(path), 2_999_990, 100) == data[-10:]
        assert files.read(str(path), 3_000_000, 100) == files.read(str(path), 9_000_000, 100) == b""
        assert files.read(str(path), 1_000_000, 5) == data[1_000_000:1_000_005]
        there = files.stat(str(path))
        assert there is not None and (there.size, there.is_folder, there.mode) == (3_000_000, False, 0o640)
        assert there.written_at == int(path.stat().st_mtime)
        files.write(str(path), [b"new"], 0o600)
        assert path.read_bytes() == b"new"
        path.unlink()
        assert files.stat(str(path)) is None
    assert list(tmp_path.glob("*.part")) == []


def test_a_write_that_fails_leaves_only_the_old_file(titan: SshRemote, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "f").write_bytes(b"old")

    def chunks() -> Iterator[bytes]:
        yield b"new" * 100_000
        raise RuntimeError("ours, not the host's")

    with titan.files() as files, pytest.raises(RuntimeError, match="ours"):
        files.write(str(folder / "f"), chunks(), 0o600)
    assert [path.name for path in folder.iterdir()] == ["f"]
    assert (folder / "f").read_bytes() == b"old"


def test_folders_are_created_with_their_parents_and_listed(titan: SshRemote, tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    with titan.files() as files:
        files.make_folder(str(deep))
        files.make_folder(str(deep))
        files.write(str(deep / "x"), [], 0o600)
        (found,) = files.entries(str(deep))
        assert (found.path, found.size, found.is_folder) == (str(deep / "x"), 0, False)
        assert [entry.is_folder for entry in files.entries(str(tmp_path / "a"))] == [True]
        assert files.entries(str(tmp_path / "none")) == []
        with pytest.raises(EngineError, match="is not a folder and cannot be made one"):
            files.make_folder(str(deep / "x"))
        with pytest.raises(EngineError):
            files.make_folder(str(deep / "x" / "y"))


def test_a_file_that_cannot_be_read_is_named_and_the_session_goes_on(titan: SshRemote, tmp_path: Path) -> None:
    with titan.files() as files:
        with pytest.raises(EngineError, match=r"titan1: .*No such file") as raised:
            files.read(str(tmp_path / "none"), 0, 1)
        assert not isinstance(raised.value, HostUnreachable)
        with pytest.raises(EngineError):
            files.write(str(tmp_path / "no" / "folder"), [b"x"], 0o600)
        assert files.stat(str(tmp_path)) is not None


def test_an_exception_of_the_caller_while_files_are_open_is_not_changed(titan: SshRemote) -> None:
    with pytest.raises(FileNotFoundError), titan.files():
        Path("/no/such/file").read_bytes()
