"""Starts and ends the fleet's own container engine, also the leftovers of one that was killed.

It shares nothing with an engine that may run on this machine: socket, folders, configuration, containerd, control
groups and bridge are its own. It leaves the kernel's forwarding alone, and the packet filter too, but for one rule on
its own bridge.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.leftovers import clear_groups, end, is_of, name_of, pid_in, processes_of, unmount_under
from tests.fleet.patience import FleetError, run, wait_for

# Debian's own client; a newer one elsewhere in PATH may lack the builder.
CLIENT = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else "docker"


@dataclass(frozen=True)
class Engine:
    """One dockerd with its own folder."""

    folder: Path
    number: int

    @property
    def socket(self) -> Path:
        return self.folder / "docker.sock"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def bridge(self) -> str:
        return f"rung{self.number}"

    @property
    def subnet(self) -> str:
        return f"10.98.{self.number}.0/24"

    def address(self, last: int) -> str:
        return f"10.98.{self.number}.{last}"

    @property
    def interface(self) -> Path:
        return Path("/sys/class/net") / self.bridge

    @property
    def made(self) -> Path:
        """The sign that the bridge of this number is ours to remove."""
        return self.folder / "network"

    @property
    def group(self) -> str:
        """The control group of the hosts. The folder is in its name: what is killed there is nobody else's."""
        return f"rung-fleet-{self.number}-{hashlib.sha256(bytes(self.folder)).hexdigest()[:8]}"

    @property
    def env(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
        return {**clean, "DOCKER_HOST": f"unix://{self.socket}", "DOCKER_BUILDKIT": "1"}

    @property
    def pid(self) -> int | None:
        """Return the pid of this engine while it runs."""
        pid = pid_in(self.folder / "docker.pid")
        return pid if pid and is_of(pid, self.folder) else None

    def docker(self, *words: object, input: bytes | None = None, check: bool = True) -> str:
        """Run the docker client on this engine."""
        return run(CLIENT, *words, input=input, env=self.env, check=check).strip()

    def start(self) -> None:
        """Start the engine and make the fleet's network."""
        (self.folder / "exec").mkdir(parents=True, exist_ok=True)
        (self.folder / "daemon.json").write_text("{}")
        (self.folder / "containerd.toml").write_text(self.containerd_settings())
        self.launch("containerd", f"--config={self.folder / 'containerd.toml'}")
        wait_for(lambda: self.containerd.exists() or not processes_of(self.folder), "the fleet's containerd")
        self.launch(*self.command())
        wait_for(lambda: self.answers() or "dockerd" not in self.running(), "the answer of the fleet's engine")
        if not self.answers():
            raise FleetError(f"the fleet's engine did not start: see {self.folder / 'log'}")
        self.connect()

    def launch(self, *command: str) -> None:
        """Start a program that outlives this one."""
        with (self.folder / "log").open("ab") as log:
            words = ["setsid", "--fork", *command]
            subprocess.run(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)

    def running(self) -> set[str]:
        names = {name_of(pid) for pid in processes_of(self.folder)}
        return names | ({"dockerd"} if "setsid" in names else set())

    @property
    def containerd(self) -> Path:
        return self.folder / "exec" / "containerd.sock"

    def containerd_settings(self) -> str:
        """Return the settings of a containerd of our own: an engine left to itself would use the machine's."""
        return (
            f'version = 2\nroot = "{self.folder}/containerd"\nstate = "{self.folder}/exec/containerd"\n'
            f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "{self.containerd}"\n'
        )

    def command(self) -> list[str]:
        paths = {"data-root": self.data, "exec-root": self.folder / "exec", "pidfile": self.folder / "docker.pid"}
        return [
            "dockerd",
            f"--host=unix://{self.socket}",
            f"--containerd={self.containerd}",
            f"--config-file={self.folder / 'daemon.json'}",
            *(f"--{name}={path}" for name, path in paths.items()),
            *("--bridge=none", "--iptables=false", "--ip-forward=false"),
            *("--exec-opt=native.cgroupdriver=cgroupfs", f"--cgroup-parent=/{self.group}"),
            f"--insecure-registry={self.subnet}",
        ]

    def answers(self) -> bool:
        return bool(self.docker("version", "--format={{.Server.Version}}", check=False))

    def connect(self) -> None:
        """Make the network of the hosts."""
        if self.interface.exists():
            raise FleetError(f"the interface {self.bridge} is there: another fleet has the number {self.number}")
        self.made.touch()
        name = f"com.docker.network.bridge.name={self.bridge}"
        self.docker("network", "create", "fleet", "--subnet", self.subnet, "--opt", name)
        self.filter("-I", check=True)

    def filter(self, action: str, *, check: bool = False) -> None:
        """Let hosts talk to each other where the packet filter also sees what crosses a bridge and would drop it."""
        rule = ("-i", self.bridge, "-o", self.bridge, "-m", "comment", "--comment", self.group, "-j", "ACCEPT")
        if filtered() and shutil.which("iptables"):
            run("iptables", "-w", action, "FORWARD", *rule, check=check)

    def stop(self) -> None:
        """End the engine and everything it started, whatever state they are in."""
        clear_groups(self.group)
        if self.pid:
            with contextlib.suppress(FleetError):
                end(self.pid, self.folder, signal.SIGTERM)
        for pid in processes_of(self.folder):
            end(pid, self.folder, signal.SIGKILL)
        clear_groups(self.group)
        unmount_under(self.folder)
        if self.made.exists():
            self.filter("-D")
            if self.interface.exists():
                run("ip", "link", "delete", self.bridge)
            self.made.unlink()
        (self.folder / "docker.pid").unlink(missing_ok=True)
        shutil.rmtree(self.folder / "exec", ignore_errors=True)


def filtered() -> bool:
    """Say whether the packet filter sees what crosses a bridge."""
    setting = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    return setting.exists() and setting.read_text().strip() == "1"


def free_number(first: int) -> int:
    """Return the first number, from one on, that no fleet of this machine has."""
    taken = {entry.name for entry in Path("/sys/class/net").iterdir()}
    for number in range(first, 255):
        if f"rung{number}" not in taken:
            return number
    raise FleetError(f"the numbers from {first} to 254 are all taken by other fleets")
