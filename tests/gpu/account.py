"""The account that Rung logs in with on this machine: plain, without a password, made for the test and removed."""

from __future__ import annotations

import pwd
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.patience import run
from tests.gpu.programs import program

NAME = "rung-gpu"


@dataclass(frozen=True)
class Account:
    """An account of this machine with its own home."""

    home: Path
    name: str = NAME

    @property
    def entry(self) -> pwd.struct_passwd | None:
        try:
            return pwd.getpwnam(self.name)
        except KeyError:
            return None

    @property
    def uid(self) -> int:
        return self.entry.pw_uid if self.entry else 0

    def make(self) -> None:
        """Make the account, or use one that an earlier test left."""
        self.home.mkdir(parents=True, exist_ok=True)
        if self.entry is None:
            # "*" is not a password and, unlike "!", does not lock the account, so sshd accepts keys.
            words = ["--system", "--user-group", "--no-create-home", "--password=*", "--shell=/bin/sh"]
            run(program("useradd"), *words, "--home-dir", self.home, self.name)
        elif Path(self.entry.pw_dir) != self.home:
            run(program("usermod"), "--home", self.home, self.name)
        shutil.chown(self.home, self.name, self.name)

    def remove(self) -> None:
        if self.entry is not None:
            run(program("userdel"), self.name, check=False)


def let_sshd_separate() -> None:
    """Make the account for the privilege separation of sshd; its package normally makes it."""
    try:
        pwd.getpwnam("sshd")
    except KeyError:
        run(program("useradd"), "--system", "--no-create-home", "--home-dir=/run/sshd", "--shell=/bin/false", "sshd")
