"""One machine of the fleet and everything that can happen to it: a cut link, a freeze, a power loss, a full disk.

The outer engine controls power, link and freezer. Everything inside the host goes through `run`, which works as root
and does not need the network. Every method returns when its effect is there.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fleet import folders
from tests.fleet.cards import DRIVER, Card, card_of, gpu_table, gpu_uuid, process_table
from tests.fleet.engine import Engine
from tests.fleet.leftovers import CGROUPS
from tests.fleet.patience import run, wait_for

IMAGE = "fleet/host"
REGISTRY = "registry.fleet"
ACCOUNT = "rung"
SHARED = "/srv/shared"
# Without the capabilities that a virtual machine may lack; --privileged would need all of them.
CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "SETFCAP"),
    *("LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER"),
    *("SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_TTY_CONFIG"),
    *("MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL"),
)


def own_groups() -> tuple[str, ...]:
    """Return the flags by which a host makes control groups for its containers, below its own."""
    if (CGROUPS / "cgroup.controllers").exists():
        return ("--cgroupns=private",)
    return (f"--volume={CGROUPS}:{CGROUPS}:rw",)


@dataclass(frozen=True)
class Machine:
    """A machine of the fleet: a container of the fleet's engine with its own address."""

    name: str
    address: str
    engine: Engine

    def create(self, *words: object) -> None:
        place = ("--name", self.name, "--hostname", self.name, "--network", "fleet", "--ip", self.address)
        # Unconfined, because the fleet must not load a profile into the machine.
        self.engine.docker("run", "--detach", "--security-opt=apparmor=unconfined", *place, *words)

    def state(self) -> dict[str, Any]:
        """Return the state of the machine from the outer engine."""
        found: dict[str, Any] = json.loads(self.engine.docker("inspect", self.name))[0]
        return found

    def is_on(self) -> bool:
        return bool(self.state()["State"]["Running"])

    def is_frozen(self) -> bool:
        return bool(self.state()["State"]["Paused"])

    def is_cut(self) -> bool:
        return "fleet" not in self.state()["NetworkSettings"]["Networks"]

    def run(self, *argv: object, input: bytes | None = None, check: bool = True) -> str:
        """Run a program on it as root and return what it prints."""
        return self.engine.docker("exec", "--interactive", self.name, *argv, input=input, check=check)

    def cut(self) -> None:
        """Cut the network link: packets are lost without an error."""
        if not self.is_cut():
            self.engine.docker("network", "disconnect", "fleet", self.name)

    def reconnect(self) -> None:
        """Restore the network link; connections that are still open go on."""
        if self.is_cut():
            self.engine.docker("network", "connect", "--ip", self.address, "fleet", self.name)

    def freeze(self) -> None:
        """Freeze all processes: connections stay open, but nothing answers."""
        if not self.is_frozen():
            self.engine.docker("pause", self.name)

    def thaw(self) -> None:
        if self.is_frozen():
            self.engine.docker("unpause", self.name)

    def power_off(self) -> None:
        """Kill all processes at once, like a power loss."""
        self.thaw()
        if self.is_on():
            self.engine.docker("kill", self.name)
            wait_for(lambda: not self.is_on(), f"the end of {self.name}")

    def power_on(self) -> None:
        if not self.is_on():
            self.engine.docker("start", self.name)

    def revive(self) -> None:
        """Bring back power and link, and end a freeze."""
        self.thaw()
        self.reconnect()
        Machine.power_on(self)

    def serves(self, port: int) -> bool:
        """Return whether the host accepts a connection to a port from here."""
        try:
            with socket.create_connection((self.address, port), timeout=1):
                return True
        except OSError:
            return False


@dataclass(frozen=True)
class Host(Machine):
    """A machine with sshd, its own engine, and fake GPUs."""

    folder: Path
    gpus: int = 1
    # A folder here that all hosts of a fleet have as SHARED, on none of their disks.
    shared: Path | None = None

    @property
    def home(self) -> str:
        """The account's home, as its path on the host."""
        return f"/home/{ACCOUNT}"

    @property
    def work(self) -> Path:
        """The account's home on the host, /home/rung, as a folder here: a small disk of its own."""
        return self.folder / "work"

    @property
    def settings(self) -> Path:
        """The host's /etc/fleet as a folder here."""
        return self.folder / "etc"

    # Start and stop

    def prepare(self, images: Path | None, client_key: str, host_key: Path) -> None:
        """Fill the host's folders: its keys, its GPUs, its small disk, and the images its engine starts with."""
        self.settings.mkdir(parents=True)
        (self.settings / "authorized_keys").write_text(client_key)
        run("cp", "--archive", host_key, self.settings / "host_key")
        run("cp", "--archive", host_key, self.folder / "first_key")
        self.set_gpus(self.gpus)
        self.set_gpu_processes()
        folders.make_disk(self.folder / "disk", self.work)
        run("chown", "1000:1000", self.work)
        if images:
            folders.share_images(images, self.folder / "docker")

    def boot(self) -> None:
        """Create the host and wait until it serves."""
        volumes = {"docker": "/var/lib/docker", "etc": "/etc/fleet", "work": self.home}
        shared = [f"--volume={self.shared}:{SHARED}"] if self.shared else []
        registry = self.address.rpartition(".")[0] + ".2"
        self.create(
            *(f"--cap-add={name}" for name in CAPABILITIES),
            *(f"--security-opt={name}=unconfined" for name in ("seccomp", "systempaths")),
            *("--device-cgroup-rule=a *:* rwm", *own_groups()),
            *(f"--volume={self.folder / here}:{there}" for here, there in volumes.items()),
            *shared,
            *("--tmpfs=/run", "--tmpfs=/tmp", f"--add-host={REGISTRY}:{registry}", IMAGE),
        )
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        wait_for(self.engine_answers, f"the engine of {self.name}")
        wait_for(lambda: self.is_cut() or self.serves(22), f"sshd on {self.name}")

    def power_on(self) -> None:
        super().power_on()
        self.wait_until_ready()

    def reboot(self) -> None:
        """Shut the host down normally and start it again."""
        self.engine.docker("stop", "--time", 60, self.name)
        self.power_on()

    # Its engine, its sshd, its disk, its GPUs

    def docker(self, *words: object, check: bool = True) -> str:
        """Run the docker client on the host's own engine."""
        return self.run("docker", *words, check=check)

    def engine_answers(self) -> bool:
        return bool(self.docker("version", "--format={{.Server.Version}}", check=False))

    def kill_engine(self) -> None:
        """Kill the host's engine; its containers run on until it is started again."""
        self.run("engine", "kill")

    def start_engine(self, *flags: str) -> None:
        """Start the host's engine; without --live-restore it ends the containers that it finds running."""
        self.run("engine", "start", *flags)
        wait_for(self.engine_answers, f"the engine of {self.name}")

    def restart_sshd(self) -> None:
        """Restart sshd and end every session, as a crash would; Debian's own restart leaves sessions alone."""
        self.run("pkill", "-KILL", "-x", "sshd", check=False)
        wait_for(lambda: not self.run("pgrep", "-x", "sshd", check=False), f"the end of sshd on {self.name}")
        self.run("/usr/sbin/sshd")
        wait_for(lambda: self.is_cut() or self.serves(22), f"sshd on {self.name}")

    def change_host_key(self) -> None:
        """Give the host another key, like a reinstalled or a false host."""
        key = self.settings / "host_key"
        key.unlink()
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", key)
        self.restart_sshd()

    def restore_host_key(self) -> None:
        run("cp", "--archive", self.folder / "first_key", self.settings / "host_key")
        self.restart_sshd()

    def fill_disk(self, leave: int = 0) -> None:
        """Fill the account's disk until only some bytes are free."""
        folders.fill(self.work, leave)

    def free_disk(self) -> None:
        folders.free(self.work)

    @property
    def card(self) -> Card:
        return card_of(self.name)

    def gpu_uuid(self, index: int) -> str:
        return gpu_uuid(self.name, index)

    def set_gpus(self, many: int, driver: str = DRIVER) -> None:
        """Give the host so many GPUs; they can fall off the bus while it runs."""
        (self.settings / "gpus").write_text(gpu_table(self.name, many, driver))

    def set_gpu_processes(self, processes: Iterable[tuple[int, int, str]] = ()) -> None:
        """Set the foreign processes on its GPUs: (index of the GPU, pid, name) each."""
        (self.settings / "gpu_processes").write_text(process_table(self.name, processes))

    # Restore

    def restore(self) -> None:
        """Undo what a test did to a host that has power and link: engine, disk, GPUs and host key."""
        self.free_disk()
        self.set_gpus(self.gpus)
        self.set_gpu_processes()
        self.run("tidy")
        if (self.folder / "first_key").read_bytes() != (self.settings / "host_key").read_bytes():
            self.restore_host_key()
        wait_for(lambda: self.serves(22), f"sshd on {self.name}")
