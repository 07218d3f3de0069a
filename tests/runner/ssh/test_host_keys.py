"""Tests host keys and logins: known_hosts, key files, the agent, and `~/.ssh/config`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import HostRefused
from rung.jobs.model.host import Host
from rung.runner.ssh.remote import SshRemote
from tests import pace
from tests.support.sshd import Sshd, keygen

NewSshd = Callable[..., Sshd]
Reach = Callable[..., SshRemote]


def works(remote: SshRemote) -> bool:
    return remote.run(["echo", "in"], timeout=pace.seconds(60)).out == b"in\n"


def refusal(remote: SshRemote) -> str:
    with pytest.raises(HostRefused) as raised:
        remote.run(["true"], timeout=pace.seconds(60))
    message = str(raised.value)
    assert "\n" not in message
    return message


def advice(message: str) -> str:
    """Return the shell line at the end of a message."""
    match = re.search(r"(?:anew|same): (.+)$", message)
    assert match, message
    return match[1]


# Host keys


def test_a_known_host_key_is_accepted(titan: SshRemote) -> None:
    assert works(titan)


def test_an_unknown_host_key_is_refused_and_the_command_shown_fixes_it(new_sshd: NewSshd, reach: Reach) -> None:
    server = new_sshd().start()
    message = refusal(reach(server))
    assert message.startswith(f"titan1: the host key of {server.name} (ssh-ed25519 SHA256:")
    assert "is not known" in message
    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(server.folder / "host_ed25519.pub")], capture_output=True, text=True, check=True
    )
    assert shown.stdout.split()[1] in message
    assert server.count_in_log("Accepted") == 0
    assert not server.known_hosts.exists()
    subprocess.run(["sh", "-c", advice(message)], check=True)
    assert server.known_hosts.read_text() == server.known_line()
    assert works(reach(server))


def test_a_changed_host_key_is_refused_and_the_command_shown_fixes_it(new_sshd: NewSshd, reach: Reach) -> None:
    server, other = new_sshd(), new_sshd()
    server.known_hosts.write_text("# mine\n" + other.known_line().replace(other.name, server.name))
    server.start()
    message = refusal(reach(server))
    assert f"the host key of {server.name} has changed" in message
    assert f"{server.known_hosts}:2 has ssh-ed25519 SHA256:" in message
    assert server.count_in_log("Accepted") == 0
    subprocess.run(["sh", "-c", advice(message)], check=True, capture_output=True)
    assert works(reach(server))


def test_a_host_key_of_another_type_than_the_known_one_is_refused(new_sshd: NewSshd, reach: Reach) -> None:
    server, other = new_sshd(), new_sshd(host_keys=("rsa",))
    server.known_hosts.write_text(other.known_line("rsa").replace(other.name, server.name))
    message = refusal(reach(server.start()))
    assert "is of another type than the known one" in message
    assert "has ssh-rsa SHA256:" in message


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_a_host_with_several_keys_shows_the_one_that_is_known(kind: str, new_sshd: NewSshd, reach: Reach) -> None:
    server = new_sshd(host_keys=("rsa", "ecdsa", "ed25519"))
    server.known_hosts.write_text(server.known_line(kind))
    assert works(reach(server.start()))


def test_a_revoked_key_is_refused_whatever_else_is_known(new_sshd: NewSshd, reach: Reach) -> None:
    server = new_sshd()
    server.known_hosts.write_text(server.known_line() + f"@revoked * {server.known_line().split(' ', 1)[1]}")
    assert "is revoked" in refusal(reach(server.start()))


def test_hashed_names_in_known_hosts_are_read(new_sshd: NewSshd, reach: Reach) -> None:
    server = new_sshd()
    server.introduce()
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(server.known_hosts)], check=True, capture_output=True)
    assert server.known_hosts.read_text().startswith("|1|")
    assert works(reach(server.start()))


def test_another_file_of_known_hosts_can_be_named(
    new_sshd: NewSshd, reach: Reach, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = new_sshd().start()
    good, empty = tmp_path / "good keys", tmp_path / "empty"
    good.write_text(server.known_line())
    assert works(reach(server.host(known_hosts=str(good))))
    message = refusal(reach(server.host(known_hosts=str(empty))))
    assert message.endswith(f">> {empty}")
    monkeypatch.setenv("RUNG_KNOWN_HOSTS", str(good))
    assert works(reach(server.host(known_hosts=str(empty))))


# Our own keys


def test_a_key_that_the_host_does_not_accept_is_refused_with_advice(sshd: Sshd, reach: Reach, tmp_path: Path) -> None:
    message = refusal(reach(sshd.host(key=str(keygen(tmp_path / "other")))))
    assert f"login as {sshd.user} is refused: none of 1 keys is accepted" in message
    assert f"ssh-copy-id -p {sshd.port} {sshd.user}@127.0.0.1" in message


def test_without_any_key_there_is_no_prompt(sshd: Sshd, reach: Reach, client_home: Path) -> None:
    (client_home / ".ssh" / "id_ed25519").unlink()
    assert "there is no key to offer" in refusal(reach(sshd))


def test_a_missing_key_file_is_named(sshd: Sshd, reach: Reach) -> None:
    assert "key file /no/such/key is not there" in refusal(reach(sshd.host(key="/no/such/key")))


def test_a_file_that_is_no_key_is_named(sshd: Sshd, reach: Reach, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("not a key\n")
    assert f"key file {tmp_path / 'note'} cannot be read" in refusal(reach(sshd.host(key=str(tmp_path / "note"))))


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_a_key_file_of_every_usual_kind_is_accepted(kind: str, sshd: Sshd, reach: Reach, tmp_path: Path) -> None:
    key = keygen(tmp_path / "mine", kind)
    sshd.accept(key)
    assert works(reach(sshd.host(key=str(key))))


def test_a_login_that_wants_a_password_is_refused_at_once(new_sshd: NewSshd, reach: Reach) -> None:
    server = new_sshd("PubkeyAuthentication no", "PasswordAuthentication yes")
    server.introduce()
    assert "the host takes no keys, only password" in refusal(reach(server.start()))


def test_a_second_factor_after_the_key_is_reported(new_sshd: NewSshd, reach: Reach) -> None:
    server = new_sshd("AuthenticationMethods publickey,password", "PasswordAuthentication yes")
    server.introduce()
    assert "after the key the host wants password too" in refusal(reach(server.start()))


# The agent


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Any) -> Iterator[Callable[..., None]]:
    """Start a real ssh-agent and return a function that gives it a key."""
    path = tmp_path / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    # 1: it answers that it holds no key; 2: it does not answer.
    wait_until(lambda: subprocess.run(["ssh-add", "-l"], capture_output=True, check=False).returncode == 1, 60)

    def add(key: Path, passphrase: str = "") -> None:
        answer = tmp_path / "answer"
        answer.write_text(f"#!/bin/sh\necho {shlex.quote(passphrase)}\n")
        answer.chmod(0o700)
        env = {**os.environ, "SSH_ASKPASS": str(answer), "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", "-q", str(key)], env=env, check=True, stdin=subprocess.DEVNULL, capture_output=True)

    yield add
    process.terminate()
    process.wait()


@pytest.fixture
def locked_key(sshd: Sshd, client_home: Path) -> Path:
    """Return a key with a passphrase, which is the only one that sshd accepts."""
    (client_home / ".ssh" / "id_ed25519").unlink()
    sshd.authorized.unlink()
    key = keygen(client_home / ".ssh" / "locked", passphrase="open sesame")
    sshd.accept(key)
    return key


def test_an_encrypted_key_that_no_agent_holds_is_reported_with_the_command_that_fixes_it(
    sshd: Sshd, reach: Reach, locked_key: Path
) -> None:
    message = refusal(reach(sshd.host(key=str(locked_key))))
    assert f"key file {locked_key} is encrypted and not in the agent: ssh-add {locked_key}" in message


@pytest.mark.parametrize("kind", ["rsa", "ed25519"])
def test_a_login_works_with_the_keys_of_the_agent_and_no_file(
    kind: str, sshd: Sshd, reach: Reach, tmp_path: Path, agent: Callable[..., None]
) -> None:
    key = keygen(tmp_path / "mine", kind)
    sshd.authorized.unlink()
    sshd.accept(key)
    agent(key)
    key.unlink()
    assert works(reach(sshd))


def test_an_encrypted_key_is_used_through_the_agent(
    sshd: Sshd, reach: Reach, locked_key: Path, agent: Callable[..., None]
) -> None:
    agent(locked_key, "open sesame")
    assert works(reach(sshd.host(key=str(locked_key))))


def test_the_named_key_is_tried_before_the_keys_of_the_agent(
    sshd: Sshd, reach: Reach, locked_key: Path, tmp_path: Path, agent: Callable[..., None]
) -> None:
    for number in range(8):
        agent(keygen(tmp_path / f"other{number}"))
    agent(locked_key, "open sesame")
    assert works(reach(sshd.host(key=str(locked_key))))
    message = refusal(reach(sshd))
    assert "hung up after" in message and "IdentitiesOnly" in message


def test_a_dead_agent_does_not_prevent_a_login(sshd: Sshd, reach: Reach, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/no/agent.sock")
    assert works(reach(sshd))


# ~/.ssh/config


def configure(home: Path, text: str) -> None:
    (home / ".ssh" / "config").write_text(text)


def test_the_ssh_config_adds_what_the_list_of_hosts_leaves_out(
    sshd: Sshd, reach: Reach, client_home: Path, tmp_path: Path
) -> None:
    key = keygen(tmp_path / "mine")
    sshd.authorized.unlink()
    sshd.accept(key)
    (client_home / ".ssh" / "more").mkdir()
    (client_home / ".ssh" / "more" / "titan").write_text(f"Host box\n  Port {sshd.port}\n  IdentityFile {key}\n")
    configure(client_home, f"Include more/*\nUser {sshd.user}\nHost box\n  HostName 127.0.0.1\n  User nobody-else\n")
    assert works(reach(Host("titan1", "box")))


def test_the_list_of_hosts_wins_over_the_ssh_config(sshd: Sshd, reach: Reach, client_home: Path) -> None:
    configure(client_home, "Host *\n  Port 1\n  User nobody-such\n  IdentityFile /no/such/key\n")
    assert works(reach(sshd.host(key=str(client_home / ".ssh" / "id_ed25519"))))


def test_only_the_named_keys_are_offered_with_identitiesonly(
    sshd: Sshd, reach: Reach, client_home: Path, tmp_path: Path, agent: Callable[..., None]
) -> None:
    agent(client_home / ".ssh" / "id_ed25519")
    configure(client_home, f"Host *\n  IdentitiesOnly yes\n  IdentityFile {keygen(tmp_path / 'other')}\n")
    assert "none of 1 keys is accepted" in refusal(reach(sshd))


def test_a_host_key_is_looked_up_under_its_alias_and_in_the_file_the_config_names(
    new_sshd: NewSshd, reach: Reach, client_home: Path, tmp_path: Path
) -> None:
    server = new_sshd().start()
    (tmp_path / "keys").write_text(server.known_line().replace(server.name, "the-titan"))
    configure(client_home, f"Host *\n  HostKeyAlias the-titan\n  UserKnownHostsFile {tmp_path / 'keys'}\n")
    assert works(reach(server))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("Host *\n  ProxyCommand nc %h %p\n", "says ProxyCommand; name the host with ProxyJump"),
        ("nonsense\n", "cannot be read"),
        ("Host *\n  Port many\n", "cannot be used"),
        ("Include config\n", "too deep"),
    ],
)
def test_a_config_that_cannot_be_used_is_named(
    config: str, message: str, sshd: Sshd, reach: Reach, client_home: Path
) -> None:
    configure(client_home, config)
    raised = refusal(reach(Host("titan1", "127.0.0.1")))
    assert message in raised and str(client_home / ".ssh" / "config") in raised


# Jump hosts


def test_a_host_is_reached_through_a_jump_host_of_the_list_on_one_connection_each(
    new_sshd: NewSshd, reach: Reach
) -> None:
    gate, inner, second = new_sshd(), new_sshd(), new_sshd()
    for server in (gate, inner, second):
        server.introduce()
        server.start()
    hosts = [inner.host(jump="gate"), gate.host("gate"), second.host("titan2", jump="gate")]
    remote = reach(*hosts)
    assert works(remote)
    assert (
        remote.run(["sh", "-c", "echo $SSH_CONNECTION"], timeout=pace.seconds(60)).out.split()[3]
        == str(inner.port).encode()
    )
    assert gate.count_in_log("Accepted publickey") == inner.count_in_log("Accepted publickey") == 1


@pytest.mark.parametrize("way", ["{user}@127.0.0.1:{port}", "ssh://{user}@127.0.0.1:{port}"])
def test_a_jump_host_can_be_an_address_and_come_from_the_ssh_config(
    way: str, new_sshd: NewSshd, reach: Reach, client_home: Path
) -> None:
    gate, inner = new_sshd(), new_sshd()
    for server in (gate, inner):
        server.introduce()
        server.start()
    configure(client_home, f"Host *\n  ProxyJump {way.format(user=gate.user, port=gate.port)}\n")
    assert works(reach(inner))
    assert gate.count_in_log("Accepted publickey") == 1


def test_two_jump_hosts_are_used_in_their_order(new_sshd: NewSshd, reach: Reach) -> None:
    outer, gate, inner = new_sshd(), new_sshd(), new_sshd()
    for server in (outer, gate, inner):
        server.introduce()
        server.start()
    way = f"{outer.user}@127.0.0.1:{outer.port},gate"
    assert works(reach(inner.host(jump=way), gate.host("gate")))
    assert outer.count_in_log("Accepted publickey") == gate.count_in_log("Accepted publickey") == 1


def test_the_keys_of_the_jump_host_and_of_the_host_behind_it_are_both_verified(new_sshd: NewSshd, reach: Reach) -> None:
    gate, inner = new_sshd().start(), new_sshd().start()
    hosts = [inner.host(jump="gate"), gate.host("gate")]
    message = refusal(reach(*hosts))
    assert message.startswith(f"titan1: its jump host: gate: the host key of {gate.name}")
    gate.introduce()
    message = refusal(reach(*hosts))
    assert message.startswith(f"titan1: the host key of {inner.name}")
    inner.introduce()
    assert works(reach(*hosts))


def test_a_jump_host_that_forbids_forwarding_is_reported(new_sshd: NewSshd, reach: Reach, sshd: Sshd) -> None:
    gate = new_sshd("AllowTcpForwarding no")
    gate.introduce()
    gate.start()
    assert "jump host gate forbids it" in refusal(reach(sshd.host(jump="gate"), gate.host("gate")))
