"""Opens one SSH connection: socket or jump host, host key, login. It tries once; retries are in connection.py.

fabric would accept any host key, so its policy is replaced; its own config files are not read.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from typing import Any

import fabric
import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from rung.jobs.model.errors import HostError, HostRefused, HostUnreachable
from rung.jobs.model.terminal_text import clean
from rung.runner.ssh.key_login import KeyLogin
from rung.runner.ssh.known_hosts import HostKey, KnownKey, known_for, read_known_keys, why_refused
from rung.runner.ssh.ssh_config import Target
from rung.runner.ssh.transport import CIPHERS, KEY_EXCHANGES, KEYS, MACS, ChannelRefused, Transport

# For each of: the TCP connection, the greeting, the exchange of keys. A login may wait for directory services.
STEP_SECONDS = 5.0
LOGIN_SECONDS = 15.0
# paramiko's words for what it finds no common algorithm for: our words, sshd's setting, and what we accept.
LACKING = {
    "kex": ("key exchange", "KexAlgorithms", KEY_EXCHANGES),
    "host key": ("type of host key", "HostKeyAlgorithms", KEYS),
    "ciphers": ("cipher", "Ciphers", CIPHERS),
    "macs": ("MAC", "MACs", MACS),
}

# paramiko also raises what it logs; without a handler Python would print it.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class _OnlyKnown(paramiko.MissingHostKeyPolicy):
    """Accepts only a host key that is known."""

    def __init__(self, target: Target, known: Sequence[KnownKey]) -> None:
        self._target, self._known = target, known

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        shown = HostKey(key.get_name(), key.get_base64())
        reason = why_refused(self._known, self._target.key_name, shown, self._target.known_hosts)
        if reason:
            raise HostRefused(reason)


def dial(target: Target, jump: Transport | None) -> Transport:
    """Return an open, verified, logged-in connection; through the jump host if there is one."""
    try:
        known = known_for(read_known_keys(target.known_hosts), target.key_name)
        return _open(target, _socket(target, jump), known)
    except HostError as error:
        raise type(error)(f"{target.name}: {error}") from None
    except IncompatiblePeer as error:
        raise HostRefused(f"{target.name}: {_missing_algorithm(clean(str(error)))}") from None
    # A host may send anything, and paramiko fails on some of it in unexpected ways.
    except Exception as error:
        raise HostUnreachable(f"{target.name}: {target.address}:{target.port} does not answer: {_why(error)}") from None


def _missing_algorithm(text: str) -> str:
    """Return what the host lacks and where it is set, from paramiko's message."""
    for words, (what, option, names) in LACKING.items():
        if f"no acceptable {words}" in text:
            return f"the host offers no modern {what}; allow one there ({option} in sshd_config): {', '.join(names)}"
    return f"no algorithm in common with the host: {text}"


def _why(error: Exception) -> str:
    text = clean(getattr(error, "strerror", None) or str(error))
    if "banner" in text and "reset" in text:
        return "it closed the connection before it greeted"
    # paramiko's message for a peer that accepts the connection and then sends nothing, or nothing that is SSH.
    if "banner" in text or "No existing session" in text:
        return f"it accepts the connection, but does not greet as an SSH server within {STEP_SECONDS:g} s"
    return text or "it closed the connection"


def _socket(target: Target, jump: Transport | None) -> Any:
    if jump is None:
        made = socket.create_connection((target.address, target.port), timeout=STEP_SECONDS)
        # Requests and answers are small and should not wait for each other.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    try:
        return jump.open_tcp(target.address, target.port, STEP_SECONDS)
    except ChannelRefused as refused:
        if refused.forbidden:
            raise HostRefused(f"jump host {target.jump} forbids it: set AllowTcpForwarding yes there") from None
        raise HostUnreachable(
            f"jump host {target.jump} cannot reach {target.address}:{target.port}: {refused}"
        ) from None


def _open(target: Target, sock: Any, known: Sequence[KnownKey]) -> Transport:
    options = {
        "sock": sock,
        "timeout": STEP_SECONDS,
        "banner_timeout": STEP_SECONDS,
        "auth_timeout": LOGIN_SECONDS,
        "transport_factory": lambda way, disabled_algorithms: _transport(way, known),
        "auth_strategy": KeyLogin(target),
    }
    config = fabric.Config(ssh_config=paramiko.SSHConfig(), lazy=True)
    opened = fabric.Connection(
        target.address, user=target.user, port=target.port, config=config, gateway=False, connect_kwargs=options
    )
    opened.client.set_missing_host_key_policy(_OnlyKnown(target, known))
    try:
        opened.open()
    except BaseException:
        opened.client.close()
        sock.close()
        raise
    transport: Transport = opened.transport
    transport.keep_alive()
    return transport


def _transport(way: Any, known: Sequence[KnownKey]) -> Transport:
    """Make a transport that prefers the known types of key, so that a host with several keys shows a known one."""
    made = Transport(way)
    made.handshake_timeout = STEP_SECONDS
    types = {entry.key.type for entry in known}
    wanted = types | ({"rsa-sha2-512", "rsa-sha2-256"} if "ssh-rsa" in types else set())
    choice = made.get_security_options()
    choice.key_types = sorted(choice.key_types, key=lambda kind: kind not in wanted)
    return made
