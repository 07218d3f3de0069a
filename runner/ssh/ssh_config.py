"""Resolves address, user and keys of a host: the list of hosts first, then `~/.ssh/config`, then the defaults.

The result is a `Target`, plain data. Nothing is connected here; `Match exec` in the user's config is run as by ssh.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import paramiko

from rung.jobs.model.errors import HostRefused
from rung.jobs.model.host import Host

DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")
MAX_INCLUDES = 16  # as deep as OpenSSH goes
MAX_BYTES = 1 << 20
HOP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?P<address>\[[^\]]+\]|[^:@]+)(?::(?P<port>\d{1,5}))?/?")


@dataclass(frozen=True)
class Target:
    """Everything that is needed to open one connection."""

    name: str
    address: str
    port: int
    user: str
    keys: tuple[Path, ...]
    # A person named these keys; otherwise they are the default files, most of which do not exist.
    keys_named: bool
    agent: bool
    jump: str | None
    # The name of the host in known_hosts files, and these files; the first one is named in advice.
    key_name: str
    known_hosts: tuple[Path, ...]


class SshConfig:
    """The user's `~/.ssh/config`, as far as it concerns addresses, users and keys."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self._folder = home / ".ssh"
        self._environ = environ
        self._config = self._read(self._folder / "config")

    def target(self, host: Host) -> Target:
        try:
            options = self._config.lookup(host.address)
            port = host.port or int(options.get("port") or 22)
        except (paramiko.SSHException, ValueError, KeyError) as error:
            raise HostRefused(f"{host.name}: {self._folder / 'config'} cannot be used: {error}") from None
        address = options["hostname"]
        jump = host.jump or options.get("proxyjump")
        if options.get("proxycommand") and not jump:
            raise HostRefused(f"{host.name}: {self._folder / 'config'} says ProxyCommand; name the host with ProxyJump")
        named = ([host.key] if host.key else []) + list(options.get("identityfile", []))
        keys = tuple(self._path(name) for name in named if name != "none")
        return Target(
            host.name,
            address,
            port,
            host.user or options.get("user") or getpass.getuser(),
            keys or tuple(self._folder / name for name in DEFAULT_KEYS),
            bool(keys),
            agent=not (keys and options.get("identitiesonly") == "yes"),
            jump=None if jump in (None, "none") or _is_itself(jump, {host.address, address}, port) else jump,
            key_name=options.get("hostkeyalias") or (address if port == 22 else f"[{address}]:{port}"),
            known_hosts=self._known_hosts(host, options.get("userknownhostsfile")),
        )

    def _known_hosts(self, host: Host, configured: str | None) -> tuple[Path, ...]:
        named = self._environ.get("RUNG_KNOWN_HOSTS") or host.known_hosts
        if named:
            return (self._path(named),)
        files = [self._path(name) for name in (configured or "").split() if name != "none"]
        return (*(files or [self._folder / "known_hosts"]), SYSTEM_KNOWN_HOSTS)

    def _path(self, name: str) -> Path:
        return self._folder.parent / name[2:] if name.startswith("~/") else Path(name)

    def _read(self, path: Path) -> paramiko.SSHConfig:
        try:
            return paramiko.SSHConfig.from_text("\n".join(self._lines(path, MAX_INCLUDES)))
        except FileNotFoundError:
            return paramiko.SSHConfig()
        except (OSError, ValueError, paramiko.SSHException) as error:
            raise HostRefused(f"{path}: cannot be read: {error}") from None

    def _lines(self, path: Path, depth: int) -> Iterator[str]:
        """Yield the lines of a file, with the lines of its Include files in place; paramiko does not follow Include."""
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES or not depth:
            raise ValueError("too large, or Include goes too deep")
        block = "Host *"
        for line in text.splitlines():
            key, _, value = line.strip().replace("=", " ", 1).partition(" ")
            if key.lower() != "include":
                block = line if key.lower() in ("host", "match") else block
                yield line
                continue
            for pattern in value.split():
                for included in self._included(pattern.strip('"')):
                    yield from self._lines(included, depth - 1)
            yield block

    def _included(self, pattern: str) -> list[Path]:
        path = self._folder / self._path(pattern)
        return sorted(found for found in Path(path.anchor).glob(str(path.relative_to(path.anchor))) if found.is_file())


def last_hop(jump: str) -> Host:
    """Return the last host of a path through jump hosts; it is reached through those before it."""
    before, _, text = jump.replace(" ", "").rpartition(",")
    match = HOP.fullmatch(text)
    if match is None:
        raise HostRefused(f"jump host {text!r} cannot be read; write [user@]address[:port]")
    port = int(match["port"]) if match["port"] else None
    return Host(text, match["address"].strip("[]"), match["user"], port, jump=before or None)


def _is_itself(jump: str, addresses: set[str], port: int) -> bool:
    """Tell whether a jump host that is set for all hosts (`Host *`) is the host itself."""
    hop = last_hop(jump)
    return hop.address in addresses and hop.port in (None, port)
