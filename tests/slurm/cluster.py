"""Runs a real Slurm on this machine: one controller and three nodes, each with GPUs of one type.

The GPUs are device files that nothing answers at, so Slurm shares them out, binds them and counts them as real ones.
All daemons are children of this process and listen on the loopback only. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import pace

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
PROGRAMS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge"}
START_SECONDS = 60.0
# A command of Slurm repeats itself for nine seconds while its controller is away.
COMMAND_SECONDS = 60.0
CONTROL_GROUPS = Path("/sys/fs/cgroup")
# The major number of NVIDIA's devices.
NVIDIA = 195


@dataclass(frozen=True)
class Node:
    name: str
    gpu: str
    gpus: int


NODES = (Node("turing", "titanrtx", 2), Node("pascal", "p100", 2), Node("ampere", "a100", 4))
ENDED = {
    *(
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
    ),
}
CONFIG = """
ClusterName=lab
SlurmctldHost={here}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/slurmd.%n
ProctrackType=proctrack/{track}
TaskPlugin=task/none
MpiDefault=none
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ReturnToService=2
SlurmdTimeout=20
KillWait=5
MinJobAge=300
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
JobRequeue=1
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
SlurmdParameters=config_overrides
{nodes}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=1-0 DefMemPerCPU=100 PriorityTier=1 State=UP
PartitionName=urgent Nodes=ALL MaxTime=1-0 DefMemPerCPU=100 PriorityTier=2 PreemptMode=OFF State=UP
"""


class Cluster:
    """A cluster in a folder of its own. Its daemons end with `down`."""

    def __init__(self, folder: Path, track: str = "linuxproc", nodes: Sequence[Node] = NODES) -> None:
        """`track`: how a node finds the processes of a job. With `cgroup` none escapes; it needs control groups.

        These are named by the node, so two such clusters on one machine need nodes with other names.
        """
        self.folder, self.config = folder, folder / "slurm.conf"
        self._track, self.nodes = track, nodes
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    # Up and down

    def up(self) -> Cluster:
        """Start the daemons and wait until all nodes are free."""
        lacking = sorted({package for name, package in PROGRAMS.items() if not shutil.which(name, path=PATH)})
        assert not lacking, f"a Slurm cluster needs {' '.join(lacking)}: run `make system` as root"
        self._write()
        key, munge = self.folder / "munge" / "key", self.folder / "munge"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        own = [f"--{word}-file={munge / word}" for word in ("key", "pid", "log", "seed")]
        self._start("munged", ["--foreground", *own, f"--socket={munge / 'socket'}"])
        pace.until(lambda: (munge / "socket").exists() or not self._is_up("munged"), START_SECONDS, "munged listens")
        assert self._is_up("munged"), (self.folder / "log" / "munged.out").read_text()
        self.start_controller()
        for node in self.nodes:
            self.start_node(node.name)
        pace.until(
            lambda: len(self.idle()) == len(self.nodes), START_SECONDS, f"the nodes are free; logs: {self.folder}/log"
        )
        return self

    def down(self) -> None:
        """End all jobs and daemons."""
        if self._is_up("slurmctld"):
            self.run("scancel", "--user=root", "--signal=KILL", "--full", check=False)
        for name in [*self._daemons]:
            self._kill(name)
        # What runs a job is no child of the node's daemon and lives on without it; some may only just be starting.
        pace.until(lambda: not self._kill_what_is_left(), COMMAND_SECONDS, f"all of {self.folder} is gone")
        for group in [path for node in self.nodes for path in CONTROL_GROUPS.glob(f"*/slurm_{node.name}")]:
            for folder in [*sorted(group.glob("**/"), reverse=True)]:
                folder.rmdir()

    def processes(self) -> list[int]:
        """Return all processes that belong to this cluster: its configuration is in their environment."""
        mark, found = f"SLURM_CONF={self.config}".encode(), []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                found += [int(environ.parent.name)] if mark in environ.read_bytes().split(b"\0") else []
        return found

    def _kill_what_is_left(self) -> list[int]:
        left = self.processes()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    def start_controller(self) -> None:
        self._start("slurmctld", ["-D", "-f", str(self.config)])

    def kill_controller(self) -> None:
        self._kill("slurmctld")

    def end_controller(self) -> None:
        """End it as an administrator would: it saves its state first."""
        self._daemons["slurmctld"].terminate()
        pace.wait(self._daemons.pop("slurmctld"), COMMAND_SECONDS)

    def signal_controller(self, number: signal.Signals) -> None:
        self._daemons["slurmctld"].send_signal(number)

    def start_node(self, name: str) -> None:
        self._start("slurmd", ["-D", "-f", str(self.config), "-N", name], name)

    def kill_daemon(self, name: str) -> None:
        """Kill a node's daemon alone: its jobs go on."""
        self._kill(name)

    def kill_node(self, name: str) -> None:
        """Kill a node's daemon and all that it runs, as a power loss would."""
        self._kill(name)
        # A daemon that starts a job just now may have begun another process.
        while left := self._running_on(name):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _running_on(self, name: str) -> list[int]:
        """Return the processes of jobs on a node, and those of Slurm that keep them: they name the job."""
        numbers = {path.name.split("_")[1].split(".")[0] for path in self._spool(name).glob(f"{name}_*.*")}
        keepers = {f"slurmstepd: [{number}." for number in numbers}
        mark, found = f"SLURMD_NODENAME={name}".encode(), []
        for pid in self.processes():
            with contextlib.suppress(OSError):
                place = Path("/proc") / str(pid)
                words = place.joinpath("cmdline").read_bytes().decode(errors="replace")
                ours = mark in place.joinpath("environ").read_bytes().split(b"\0")
                if ours or any(words.startswith(keeper) for keeper in keepers):
                    found.append(pid)
        return found

    def _spool(self, name: str) -> Path:
        return self.folder / f"spool.{name}"

    # What people do

    def env(self) -> dict[str, str]:
        return {**os.environ, "PATH": PATH, "SLURM_CONF": str(self.config)}

    def run(self, *argv: str, stdin: str = "", check: bool = True) -> str:
        """Run a command of Slurm and return what it prints."""
        done = subprocess.run(
            argv,
            input=stdin,
            env=self.env(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=pace.seconds(COMMAND_SECONDS),
            check=False,
        )
        assert not check or done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def submit(self, script: str, *options: str) -> str:
        """Submit a script of a shell and return the number of the job."""
        return self.run("sbatch", "--parsable", *options, stdin=f"#!/bin/sh\n{script}\n").strip()

    def job(self, number: str) -> dict[str, str]:
        """Return what the controller says about a job, by the names of `scontrol`."""
        words = self.run("scontrol", "show", "job", "-o", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def ended(self, number: str, usual: float = 60.0) -> dict[str, str]:
        """Wait until a job has ended, and return what the controller says about it."""
        pace.until(lambda: self.job(number)["JobState"] in ENDED, usual, f"job {number} ends")
        return self.job(number)

    def idle(self) -> list[str]:
        return self.run("sinfo", "-h", "-N", "-p", "gpu", "-t", "idle", "-o", "%N", check=False).split()

    # Making it

    def _write(self) -> None:
        for name in ("munge", "state", "log", "run", "dev"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "munge").chmod(0o711)
        ports = free_ports(len(self.nodes) + 1)
        here, nodes, gres = socket.gethostname().split(".")[0], [], ["AutoDetect=off"]
        for node, port in zip(self.nodes, ports[1:], strict=True):
            nodes.append(
                f"NodeName={node.name} NodeHostname={here} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=64000 "
                f"Gres=gpu:{node.gpu}:{node.gpus} Feature={node.gpu}"
            )
            gres.append(f"NodeName={node.name} Name=gpu Type={node.gpu} File={self._devices(node)}")
        values: Mapping[str, object] = {"here": here, "port": ports[0], "folder": self.folder}
        text = CONFIG.format(**values, track=self._track, nodes="\n".join(nodes))
        self.config.write_text(text.lstrip())
        (self.folder / "gres.conf").write_text("\n".join([*gres, ""]))
        (self.folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={CONTROL_GROUPS}\n")

    def _devices(self, node: Node) -> str:
        folder = self.folder / "dev" / node.name
        folder.mkdir()
        for number in range(node.gpus):
            os.mknod(folder / f"nvidia{number}", 0o666 | stat.S_IFCHR, os.makedev(NVIDIA, number))
        return f"{folder}/nvidia[0-{node.gpus - 1}]"

    def _start(self, program: str, options: Sequence[str], name: str = "") -> None:
        name = name or program
        assert not self._is_up(name), f"{name} runs already"
        path = shutil.which(program, path=PATH)
        assert path is not None
        with (self.folder / "log" / f"{name}.out").open("ab") as out:
            command = [path, *options]
            self._daemons[name] = subprocess.Popen(
                command, env=self.env(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def _is_up(self, name: str) -> bool:
        return name in self._daemons and self._daemons[name].poll() is None

    def _kill(self, name: str) -> None:
        daemon = self._daemons.pop(name)
        daemon.kill()
        daemon.wait()


def free_ports(count: int) -> list[int]:
    """Return so many ports that nobody uses now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
