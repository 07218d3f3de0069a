"""The container engine of the machine that becomes a host: no network, and GPUs for containers that ask for them.

The engine uses NVIDIA's container toolkit if it is installed. Otherwise our runtime (runtime.py) puts devices and
driver into the container, and the engine gets a hook that does nothing instead of NVIDIA's.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import docker
import requests

from tests.fleet.engine import Engine
from tests.fleet.leftovers import CGROUPS
from tests.gpu.driver import Driver
from tests.gpu.libraries import loader_folder
from tests.gpu.programs import HOOK, found, program, search_path

RUNTIME = Path(__file__).parent / "runtime.py"
STAND_IN = Path(__file__).parents[1] / "fleet" / "machine" / HOOK
# Controllers of the kernel that the limits of a container need.
CONTROLLERS = ("cpu", "cpuset", "memory", "pids")


@dataclass(frozen=True)
class MachineEngine(Engine):
    """An engine whose socket a group may use."""

    account: str = "root"

    def furnish(self, driver: Driver) -> None:
        """Write the files that the engine needs to start."""
        self.folder.mkdir(parents=True, exist_ok=True)
        share_groups()
        if not self.has_toolkit:
            (self.folder / "bin").mkdir(exist_ok=True)
            script(self.folder / "bin" / HOOK, STAND_IN.read_text())
            settings = {"runc": str(program("runc")), "folder": str(loader_folder()), **driver.to_dict()}
            (self.folder / "driver.json").write_text(json.dumps(settings, indent=1))
            script(self.folder / "bin" / "rung-gpu", self.runtime(settings["runc"]))

    def runtime(self, runc: str) -> str:
        """Return our runtime as a script: of all calls for a container, only the one that creates it needs Python."""
        ours = f"exec {sys.executable} -I {RUNTIME} {self.folder / 'driver.json'}"
        return f'#!/bin/sh\ncase " $* " in *" create "*) {ours} "$@" ;; esac\nexec {runc} "$@"\n'

    @property
    def has_toolkit(self) -> bool:
        return found(HOOK) is not None

    def launch(self, *command: str) -> None:
        """Start a program of the engine that outlives this process, with the engine's own programs first on PATH."""
        env = {**os.environ, "PATH": f"{self.folder / 'bin'}:{search_path()}"}
        words = [str(program("setsid")), "--fork", str(program(command[0])), *command[1:]]
        with (self.folder / "log").open("ab") as log:
            subprocess.run(words, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)

    def command(self) -> list[str]:
        plain = [word for word in super().command() if not word.startswith("--insecure-registry")]
        ours = [f"--add-runtime=rung-gpu={self.folder / 'bin' / 'rung-gpu'}", "--default-runtime=rung-gpu"]
        return [*plain, f"--group={self.account}", *([] if self.has_toolkit else ours)]

    def connect(self) -> None:
        """Do nothing: jobs on this host have no network."""

    def client(self) -> docker.APIClient:
        return docker.APIClient(base_url=f"unix://{self.socket}", version="auto", timeout=600)

    def answers(self) -> bool:
        with contextlib.suppress(docker.errors.DockerException, requests.RequestException):
            return bool(self.client().ping())
        return False


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def share_groups() -> None:
    """Enable the controllers of cgroup v2 for child groups; inside a container they may still be off."""
    if not (CGROUPS / "cgroup.controllers").exists() or hand_down():
        return
    # A group with controllers for its children must have no processes of its own.
    aside = CGROUPS / "machine"
    aside.mkdir(exist_ok=True)
    for pid in (CGROUPS / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):
            (aside / "cgroup.procs").write_text(pid)
    hand_down()


def hand_down() -> bool:
    """Enable the controllers that the limits of a container need; return whether all of them could be enabled."""
    there, control = (CGROUPS / "cgroup.controllers").read_text().split(), CGROUPS / "cgroup.subtree_control"
    for name in CONTROLLERS:
        if name in there and name not in control.read_text().split():
            with contextlib.suppress(OSError):
                control.write_text(f"+{name}")
    return all(name in control.read_text().split() for name in CONTROLLERS if name in there)
