"""Runs a real sshd on the loopback for tests: own keys, config and port; it can be killed, frozen and restarted."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rung.jobs.model.host import Host
from tests import pace

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "/usr/sbin/sshd"
# sshd needs this empty folder when root starts it.
PRIVILEGE_FOLDER = Path("/run/sshd")
START_SECONDS = 60.0


def keygen(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    bits = ["-b", "2048"] if kind == "rsa" else []
    command = ["ssh-keygen", "-q", "-t", kind, *bits, "-N", passphrase, "-C", path.name, "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


@dataclass
class Sshd:
    """One sshd. Its clients' home is `home`: known_hosts, keys and config are there, and the first key is accepted."""

    folder: Path
    home: Path
    host_keys: tuple[str, ...] = ("ed25519",)
    settings: tuple[str, ...] = ()
    user: str = field(default_factory=lambda: pwd.getpwuid(os.geteuid()).pw_name)

    def __post_init__(self) -> None:
        assert Path(SSHD).exists(), "openssh-server is not installed: make system"
        self.folder.mkdir(parents=True)
        (self.home / ".ssh").mkdir(parents=True, exist_ok=True)
        for kind in self.host_keys:
            keygen(self.folder / f"host_{kind}", kind)
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.authorized = self.folder / "authorized_keys"
        key = self.home / ".ssh" / "id_ed25519"
        self.accept(key if key.exists() else keygen(key))

    @property
    def name(self) -> str:
        """Return the name of this host in known_hosts."""
        return f"[127.0.0.1]:{self.port}"

    def host(self, name: str = "titan1", **fields: Any) -> Host:
        return Host(name, "127.0.0.1", self.user, self.port, **fields)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh" / "known_hosts"

    def accept(self, key: Path) -> None:
        with self.authorized.open("a") as file:
            file.write(Path(f"{key}.pub").read_text())

    def known_line(self, kind: str = "ed25519") -> str:
        return f"{self.name} {' '.join((self.folder / f'host_{kind}.pub').read_text().split()[:2])}\n"

    def introduce(self) -> None:
        """Write this host's keys to its clients' known_hosts."""
        with self.known_hosts.open("a") as file:
            file.writelines(self.known_line(kind) for kind in self.host_keys)

    def start(self) -> Sshd:
        if os.geteuid() == 0:
            PRIVILEGE_FOLDER.mkdir(mode=0o755, exist_ok=True)
        config = self.folder / "config"
        config.write_text("\n".join(self._config()) + "\n")
        before = self.count_in_log("Server listening") if self.log.exists() else 0
        with self.log.open("ab") as log:
            command = [SSHD, "-D", "-e", "-f", str(config)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        pace.until(lambda: self._listens(before), START_SECONDS, f"sshd listens; its log is {self.log}")
        return self

    def _listens(self, before: int) -> bool:
        # Read from the log: a connection would be one more for the tests that count connections.
        assert self._process is not None and self._process.poll() is None, self.log.read_text()
        return self.count_in_log("Server listening") > before

    def _config(self) -> Iterator[str]:
        # sshd takes the first value of a setting.
        yield from self.settings
        yield f"Port {self.port}"
        yield "ListenAddress 127.0.0.1"
        yield from (f"HostKey {self.folder / f'host_{kind}'}" for kind in self.host_keys)
        yield f"AuthorizedKeysFile {self.authorized}"
        yield f"PidFile {self.folder / 'pid'}"
        yield "StrictModes no"
        yield "UsePAM no"
        yield "PasswordAuthentication no"
        yield "KbdInteractiveAuthentication no"
        yield "PermitRootLogin prohibit-password"
        yield "Subsystem sftp internal-sftp"
        yield "LogLevel VERBOSE"

    def pids(self) -> list[int]:
        """Return the pids of the listener and of all its child processes."""
        if self._process is None or self._process.poll() is not None:
            return []
        children: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(stat.parent.name))
        found = [self._process.pid]
        for pid in found:
            found += children.get(pid, [])
        return found

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the listener and every connection."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def drop(self) -> None:
        """Kill every connection, but not the listener."""
        for pid in self.pids()[1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def count_in_log(self, text: str) -> int:
        """Return how many lines of the log contain this text."""
        return sum(text in line for line in self.log.read_text(errors="replace").splitlines())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
