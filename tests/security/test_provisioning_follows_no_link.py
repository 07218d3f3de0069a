"""Tests that provisioning a host never follows a link that the account could have made.

0.1.0 made `~/.ssh` and wrote `authorized_keys` as root and through links: an account that linked `.ssh` to another
folder had that folder given to it. `tests/fleet/bare` makes the attempt on a real machine.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ROLES = Path(__file__).resolve().parents[2] / "ansible" / "roles"
SCRIPT = (ROLES / "user/files/authorize").read_text()
KEYS = "ssh-ed25519 AAAA one\nssh-ed25519 BBBB two"


def authorize(home: Path, task: str = "write") -> subprocess.CompletedProcess[str]:
    words = ["/bin/sh", "-c", SCRIPT, "authorize", str(home), task]
    return subprocess.run(words, input=KEYS, capture_output=True, text=True)


def modes(home: Path) -> list[int]:
    return [path.stat().st_mode & 0o777 for path in (home / ".ssh", home / ".ssh/authorized_keys")]


def test_the_keys_are_written_once_and_only_for_the_account(tmp_path: Path) -> None:
    assert authorize(tmp_path, "look").stdout == "changed\n"
    assert not list(tmp_path.iterdir()), "a look changes nothing"
    assert authorize(tmp_path).stdout == "changed\n"
    assert (tmp_path / ".ssh/authorized_keys").read_text() == KEYS + "\n"
    assert modes(tmp_path) == [0o700, 0o600]
    assert authorize(tmp_path).stdout == ""
    (tmp_path / ".ssh").chmod(0o777)
    (tmp_path / ".ssh/authorized_keys").write_text("ssh-ed25519 CCCC stranger\n")
    assert authorize(tmp_path).stdout == "changed\n"
    assert (tmp_path / ".ssh/authorized_keys").read_text() == KEYS + "\n", "no other key stays"
    assert modes(tmp_path) == [0o700, 0o600]
    assert [path.name for path in (tmp_path / ".ssh").iterdir()] == ["authorized_keys"], "no draft is left"


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    home, victim = tmp_path / "home", tmp_path / "victim"
    home.mkdir()
    victim.mkdir(mode=0o755)
    (home / ".ssh").symlink_to(victim)
    done = authorize(home)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{home}/.ssh is a link to {victim}: nothing was changed")
    assert not list(victim.iterdir())
    assert victim.stat().st_mode & 0o777 == 0o755


def test_a_link_in_the_place_of_the_keys_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/authorized_keys").symlink_to(victim)
    done = authorize(tmp_path)
    assert done.returncode == 1
    assert "is a link to" in done.stderr
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("what", ["pipe", "folder"])
def test_anything_else_in_the_place_of_the_keys_is_refused(tmp_path: Path, what: str) -> None:
    keys = tmp_path / ".ssh/authorized_keys"
    keys.parent.mkdir()
    os.mkfifo(keys) if what == "pipe" else keys.mkdir()
    done = authorize(tmp_path)
    assert done.returncode == 1
    assert "is no file" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    os.chown(tmp_path / ".ssh", 65534, 65534)
    done = authorize(tmp_path)
    assert done.returncode == 1
    assert "belongs to another account" in done.stderr


def test_root_writes_nothing_into_a_home_itself() -> None:
    """What a role does in the home of an account, it does with the rights of that account, or without links."""
    for file in ROLES.glob("*/tasks/*.yml"):
        for task in yaml.safe_load(file.read_text()):
            text = yaml.safe_dump(task)
            if "~{{" in text or "_account.home" in text or "controller_home" in text:
                own = "--user={{ user_name }}" in text or "become_user" in task
                made = task.get("ansible.builtin.file", {}).get("follow") is False
                account = "ansible.builtin.user" in task
                assert own or made or account, f"{file.parent.parent.name}: {task['name']}"
