"""Logs in with keys from the agent and from files, in the order of ssh. Never asks a person, never uses a password."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.pkey import UnknownKeyType

from rung.jobs.model.errors import HostRefused, HostUnreachable
from rung.jobs.model.terminal_text import clean
from rung.runner.ssh.ssh_config import Target

# OpenSSH ends the connection after its sixth refused key (MaxAuthTries).
MANY_KEYS = 5


class KeyLogin:
    """Logs in to one host with any key that it accepts; the error names the keys that could not be tried."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._notes: list[str] = []
        self._offered = 0

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Log in, or raise; paramiko calls this."""
        agent = self._agent()
        try:
            if any(self._accepts(transport, key) for key in self._keys(agent)):
                return
        finally:
            if agent is not None:
                agent.close()
        target = self._target
        tried = f"none of {self._offered} keys is accepted" if self._offered else "there is no key to offer"
        port = "" if target.port == 22 else f"-p {target.port} "
        advice = f"give it one with: ssh-copy-id {port}{target.user}@{target.address}"
        raise HostRefused(f"login as {target.user} is refused: {'; '.join([tried, *self._notes])}; {advice}")

    def _accepts(self, transport: paramiko.Transport, key: paramiko.PKey) -> bool:
        self._offered += 1
        try:
            more = transport.auth_publickey(self._target.user, key)
        except paramiko.BadAuthenticationType as error:
            allowed = clean(", ".join(error.allowed_types))
            raise HostRefused(f"the host takes no keys, only {allowed}; allow PubkeyAuthentication there") from None
        # paramiko fails in many ways on kinds of keys that it does not know, such as those of hardware tokens.
        except Exception as error:
            self._raise_if_lost(transport, error)
            return False
        if more:
            raise HostRefused(f"after the key the host wants {clean(', '.join(more))} too; Rung has nothing but keys")
        return True

    def _raise_if_lost(self, transport: paramiko.Transport, error: Exception) -> None:
        """Raise if the connection was lost; return if the host only refused a key."""
        if transport.is_active() and "timeout" not in str(error).lower():
            return
        if not transport.is_active() and self._offered >= MANY_KEYS:
            raise HostRefused(
                f"the host hung up after {self._offered} keys; name the right one (ansible_ssh_private_key_file), "
                "and say IdentitiesOnly yes in ~/.ssh/config"
            ) from None
        raise HostUnreachable(f"the connection was lost while logging in: {clean(str(error))}") from None

    def _keys(self, agent: paramiko.Agent | None) -> Iterator[paramiko.PKey]:
        """Yield the keys named for the host, from the agent where it holds them, then the agent's others."""
        held = {key.asbytes(): key for key in agent.get_keys()} if agent else {}
        for path in self._target.keys:
            from_agent = held.pop(_public_part(path), None)
            key = from_agent or self._load(path)
            if key is not None:
                yield key
        if self._target.agent:
            yield from held.values()

    def _agent(self) -> paramiko.Agent | None:
        # paramiko checks this variable too, but leaves a socket open when it cannot connect.
        if not Path(os.environ.get("SSH_AUTH_SOCK", "")).is_socket():
            return None
        try:
            return paramiko.Agent()
        except (paramiko.SSHException, OSError) as error:
            self._notes.append(f"the agent does not answer: {error}")
            return None

    def _load(self, path: Path) -> paramiko.PKey | None:
        try:
            return paramiko.PKey.from_path(path)
        except FileNotFoundError:
            if self._target.keys_named:
                self._notes.append(f"key file {path} is not there")
        except (TypeError, paramiko.PasswordRequiredException):
            self._notes.append(f"key file {path} is encrypted and not in the agent: ssh-add {path}")
        except (OSError, ValueError, paramiko.SSHException, UnknownKeyType, UnsupportedAlgorithm) as error:
            self._notes.append(f"key file {path} cannot be read: {clean(str(error)) or type(error).__name__}")
        return None


def _public_part(path: Path) -> bytes:
    """Return the public key beside a key file, which identifies the key in the agent; empty if there is none."""
    try:
        return paramiko.pkey.PublicBlob.from_file(f"{path}.pub").key_blob
    except (OSError, ValueError):
        return b""
