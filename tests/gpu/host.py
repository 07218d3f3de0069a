"""This machine as a host of Rung: an sshd, an engine and an account of its own, an image, and the list of hosts.

It changes nothing on the machine except the account, which it removes at the end.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from rung.jobs.model.gpu import Gpu
from tests.fleet.leftovers import end, pid_in
from tests.fleet.patience import run, say
from tests.gpu.account import Account, let_sshd_separate
from tests.gpu.driver import find_driver, gpus
from tests.gpu.engine import MachineEngine
from tests.gpu.programs import check_machine, program, search_path
from tests.gpu.rootfs import MachinePython, ask_python, make_image
from tests.support.sshd import Sshd

# On a disk, and readable by an account that is not root.
FOLDER = Path("/var/tmp/rung-gpu")
NAME = "gpu-machine"


class GpuHost:
    """This machine, as Rung sees it."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self.account = Account(folder / "home")
        self.engine = MachineEngine(folder / "engine", 0, self.account.name)
        self.gpus: tuple[Gpu, ...] = ()
        self.python: MachinePython | None = None
        self.image = ""
        self.sshd: Sshd | None = None

    @property
    def inventory(self) -> Path:
        return self.folder / "hosts.yml"

    @property
    def client(self) -> Path:
        """The home of the SSH client: key and known hosts."""
        return self.folder / "client"

    @property
    def ssh_config(self) -> Path:
        return self.folder / "ssh_config"

    @contextmanager
    def up(self) -> Iterator[GpuHost]:
        """Make this machine a host during the block; first remove what a killed run left."""
        check_machine()
        self.down()
        try:
            self.start()
            yield self
        finally:
            self.down()

    def start(self) -> None:
        self.gpus = gpus()
        say(f"{', '.join(gpu.name for gpu in self.gpus)}; asking Python for torch")
        self.python = ask_python()
        say(f"torch {self.python.torch} on {self.python.gpu or 'no GPU'}; starting an engine and an sshd")
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.account.make()
        let_sshd_separate()
        self.engine.furnish(find_driver(self.gpus))
        self.engine.start()
        self.image = make_image(self.engine, self.python, self.account, self.folder / "image")
        self.serve()
        self.write_inventory()
        self.write_ssh_config()

    def serve(self) -> None:
        """Start an sshd for this account only; its sessions find nvidia-smi, and `docker` finds the engine there."""
        path = f"{program('nvidia-smi').parent}:{search_path()}"
        # Of several lines with SetEnv, sshd takes only the first.
        variables = f"PATH={path} DOCKER_HOST=unix://{self.engine.socket}"
        settings = (f"AllowUsers {self.account.name}", f"SetEnv {variables}")
        self.sshd = Sshd(self.folder / "sshd", self.client, settings=settings, user=self.account.name)
        self.sshd.introduce()
        self.sshd.start()

    def write_inventory(self) -> None:
        assert self.sshd is not None
        host = {
            "ansible_host": "127.0.0.1",
            "ansible_port": self.sshd.port,
            "ansible_user": self.account.name,
            "ansible_ssh_private_key_file": str(self.client / ".ssh" / "id_ed25519"),
            "rung_known_hosts": str(self.sshd.known_hosts),
            "rung_engine_socket": str(self.engine.socket),
        }
        group = {self.gpus[0].type.lower(): {"hosts": {NAME: host}}}
        self.inventory.write_text(yaml.safe_dump({"all": {"children": group}}, sort_keys=False))

    def write_ssh_config(self) -> None:
        assert self.sshd is not None
        options = {
            "HostName": "127.0.0.1",
            "Port": self.sshd.port,
            "User": self.account.name,
            "IdentityFile": self.client / ".ssh" / "id_ed25519",
            "UserKnownHostsFile": self.sshd.known_hosts,
            "IdentitiesOnly": "yes",
        }
        lines = "".join(f"  {name} {value}\n" for name, value in options.items())
        self.ssh_config.write_text(f"Host {NAME}\n{lines}")

    def fields(self) -> dict[str, Any]:
        """Return the fields of a job file that runs here."""
        assert self.python is not None
        return {
            "image": self.image,
            "resources": {"gpu": [f"{self.gpus[0].type}:1"], "cpus": os.cpu_count() or 1, "shm": "8g"},
            "volumes": self.python.volumes,
            "envs": self.python.envs,
            "network": "none",
        }

    def down(self) -> None:
        """Remove everything: sshd, engine, containers, account and folders."""
        if self.sshd is not None:
            self.sshd.kill()
            self.sshd = None
        if self.folder.exists():
            left = pid_in(self.folder / "sshd" / "pid")
            if left:
                end(left, self.folder, signal.SIGKILL)
            self.engine.stop()
            shutil.rmtree(self.folder)
        self.account.remove()

    # What a campaign needs of a fleet, here of this machine alone

    @property
    def hosts(self) -> dict[str, GpuHost]:
        return {NAME: self}

    @property
    def images(self) -> dict[str, str]:
        return {"tiny": self.image, "train": self.image}

    @property
    def home(self) -> str:
        return str(self.account.home)

    def run(self, *argv: object) -> str:
        return run(*argv)

    def docker(self, *words: object) -> str:
        return self.engine.docker(*words)
