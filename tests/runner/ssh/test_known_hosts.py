"""Tests that a host key is accepted only if a known_hosts file has it for exactly that name."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from pathlib import Path

import pytest

from rung.jobs.model.errors import HostRefused
from rung.runner.ssh.known_hosts import HostKey, known_for, read_known_keys, why_refused

OURS = HostKey("ssh-ed25519", base64.b64encode(b"ours").decode())
OTHER = HostKey("ssh-ed25519", base64.b64encode(b"other").decode())
FILE = Path("/known hosts")


def problem(tmp_path: Path, text: str, name: str = "titan", shown: HostKey = OURS) -> str | None:
    path = tmp_path / "known_hosts"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return why_refused(known_for(read_known_keys([path]), name), name, shown, [FILE])


def line(hosts: str, key: HostKey = OURS) -> str:
    return f"{hosts} {key.type} {key.base64} a comment\n"


@pytest.mark.parametrize(
    ("hosts", "name"),
    [
        ("titan", "titan"),
        ("TITAN", "titan"),
        ("other,titan", "titan"),
        ("*.lab", "titan.lab"),
        ("tit?n", "titan"),
        ("[titan]:2222", "[titan]:2222"),
        ("[*.lab]:2222", "[titan.lab]:2222"),
        ("192.0.2.1", "192.0.2.1"),
        ("|1|", "titan"),
    ],
)
def test_a_key_is_known_for_the_names_of_its_line(hosts: str, name: str, tmp_path: Path) -> None:
    hosts = hashed(name) if hosts == "|1|" else hosts
    assert problem(tmp_path, "# a comment\n\n" + line(hosts), name) is None


def hashed(name: str) -> str:
    salt = os.urandom(20)
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


@pytest.mark.parametrize(
    ("hosts", "name"),
    [
        ("titan2", "titan"),
        ("titan", "[titan]:2222"),
        ("[titan]:2222", "titan"),
        ("[a-z]itan", "titan"),
        ("*,!titan", "titan"),
        ("!*,titan", "titan"),
        ("|1|not|base64!", "titan"),
        ("|1|", "titan"),
    ],
)
def test_a_key_is_not_known_for_any_other_name(hosts: str, name: str, tmp_path: Path) -> None:
    assert "is not known" in (problem(tmp_path, line(hosts), name) or "")


def test_any_of_several_known_keys_is_accepted_and_no_other(tmp_path: Path) -> None:
    text = line("titan", OTHER) + line("titan", HostKey("ssh-rsa", "AAAA")) + line("titan")
    assert problem(tmp_path, text) is None
    assert "has changed" in (problem(tmp_path, line("titan", OTHER)) or "")
    assert "is of another type" in (problem(tmp_path, line("titan", HostKey("ssh-rsa", "AAAA"))) or "")


def test_a_revoked_or_ca_line_does_not_make_a_key_known(tmp_path: Path) -> None:
    assert "is revoked" in (problem(tmp_path, "@revoked " + line("*") + line("titan")) or "")
    assert "is not known" in (problem(tmp_path, "@cert-authority " + line("*")) or "")
    assert "is not known" in (problem(tmp_path, "@revoked " + line("titan", OTHER)) or "")


@pytest.mark.parametrize("text", ["titan\n", "titan ssh-ed25519\n", "\0\0\0", "\udcff" * 100, "#" + line("titan"), ""])
def test_with_a_broken_file_no_key_is_known(text: str, tmp_path: Path) -> None:
    assert "is not known" in (problem(tmp_path, text) or "")


def test_an_unreadable_known_key_is_distinguished_from_the_shown_one(tmp_path: Path) -> None:
    reported = problem(tmp_path, line("titan", HostKey("ssh-ed25519", "*")))
    assert reported and "(unreadable)" in reported and f"{tmp_path}/known_hosts:1" in reported


def test_with_missing_files_no_key_is_known(tmp_path: Path) -> None:
    assert read_known_keys([tmp_path / "none", tmp_path / "none" / "deeper"]) == []


def test_with_an_unreadable_file_no_key_is_known(tmp_path: Path) -> None:
    with pytest.raises(HostRefused, match=f"{tmp_path}, where .* cannot be read: Is a directory"):
        read_known_keys([tmp_path])


def test_the_command_that_fixes_it_is_safe_in_a_shell() -> None:
    reported = why_refused([], "[a;b]:22", OURS, [FILE])
    assert reported and reported.endswith(f">> '{FILE}'")
    assert f"echo '[a;b]:22 {OURS.type} {OURS.base64}'" in reported
