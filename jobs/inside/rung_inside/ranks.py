"""Starts a command several times under torchrun, and merges what its ranks print into one output.

Runs as `python -m rung_inside.ranks COUNT COMMAND...`, standard library only, Python 3.8+. The ranks meet on the
loopback, at a free port; those on several nodes of a cluster, or on several hosts, where this runs once on each, at the
first of them.
Each prints into a pipe of its own, from which whole lines go on, each behind its rank:
`[rank1]: step=3 loss=2.5`. torchrun's own --tee reads files, and can print half a line. `--rank OUTPUTS COMMAND...`
is what torchrun starts: it takes the pipe of its rank as its output, and becomes the command.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any

PR_SET_PDEATHSIG = 1
SIOCGIFADDR = 0x8915
# Set for each rank: where its output goes, which is the attempt's log in the end.
OUTPUT = "RUNG_OUTPUT"
READ_BYTES = 64 * 1024
# A line that is longer goes on in pieces.
LONGEST = 64 * 1024
# A bar ends each of its states by a carriage return.
LINE = re.compile(rb"[^\r\n]*[\r\n]")
# How long the output is read after torchrun has ended: a process that a rank has left behind may hold it for ever.
LAST_SECONDS = 10.0
# Below the ports that a system gives away by itself.
FIRST_PORT, PORTS = 12000, 20000
_writing = threading.Lock()


def main(arguments: list[str]) -> int:
    if arguments[0] == "--rank":
        return become_rank(arguments[1].split(","), arguments[2:])
    return launch(int(arguments[0]), arguments[1:])


def launch(count: int, command: list[str]) -> int:
    """Run the command as so many ranks, and return the exit code of torchrun."""
    pipes = [os.pipe() for _ in range(count)]
    outputs = ",".join("/proc/%d/fd/%d" % (os.getpid(), write) for _, write in pipes)
    # Who ends the attempt sends the signal to all of its processes. This one stays, to read what they say about it.
    signal.signal(signal.SIGTERM, _stay)
    child = subprocess.Popen(torchrun(count, outputs, command), preexec_fn=_end_with_parent)
    first = node_rank() * count
    readers = [
        threading.Thread(target=merge, args=(rank, read), daemon=True) for rank, (read, _) in enumerate(pipes, first)
    ]
    for reader in readers:
        reader.start()
    code = child.wait()
    for _, write in pipes:
        os.close(write)
    until = time.monotonic() + LAST_SECONDS
    for reader in readers:
        reader.join(max(0.0, until - time.monotonic()))
    return code if code >= 0 else 128 - code


def torchrun(count: int, outputs: str, command: list[str]) -> list[str]:
    """Return the command that starts the ranks."""
    rank = [sys.executable, "-I", "-S", os.path.abspath(__file__), "--rank", outputs, *command]
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=%d" % count),
        *(*meeting(), "--no_python", *rank),
    ]


def meeting() -> list[str]:
    """Return how the ranks of all nodes find each other."""
    if "RUNG_MEETING" in os.environ:
        host, _, at_port = os.environ["RUNG_MEETING"].rpartition(":")
        use_interface_to(host)
        first = ["--master_addr=%s" % host, "--master_port=%s" % at_port]
        return ["--nnodes=%s" % os.environ["RUNG_NODES"], "--node_rank=%d" % node_rank(), *first]
    address, nodes = os.environ.get("SLURM_LAUNCH_NODE_IPADDR"), os.environ.get("SLURM_NNODES", "1")
    if nodes == "1" or not address:
        # The name of the machine need not be known in a container without a network.
        return ["--nnodes=1", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "--local_addr=127.0.0.1"]
    # All nodes must know the port beforehand. Jobs that share their first node differ in their numbers.
    port = FIRST_PORT + int(os.environ["SLURM_JOB_ID"]) % PORTS
    at = ["--master_addr=%s" % address, "--master_port=%d" % port]
    return ["--nnodes=%s" % nodes, "--node_rank=%d" % node_rank(), *at]


def use_interface_to(address: str) -> None:
    """Have gloo use the network in which the first node is: the name of a machine often means its loopback."""
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, FIRST_PORT))  # sends nothing
            own = socket.inet_aton(probe.getsockname()[0])
            names = [name for _, name in socket.if_nameindex() if address_of(probe, name) == own]
    except OSError:
        return
    if names:
        os.environ["GLOO_SOCKET_IFNAME"] = names[0]


def address_of(probe: socket.socket, interface: str) -> bytes | None:
    """Return the address of a network interface; None: it has none."""
    try:
        asked = struct.pack("256s", interface.encode()[:15])
        return fcntl.ioctl(probe.fileno(), SIOCGIFADDR, asked)[20:24]
    except OSError:
        return None


def node_rank() -> int:
    """Return the number of this node among those of the job."""
    if "RUNG_MEETING" in os.environ:
        return int(os.environ["RUNG_NODE_RANK"])
    return int(os.environ.get("SLURM_NODEID", "0")) if os.environ.get("SLURM_NNODES", "1") != "1" else 0


def _stay(*_: Any) -> None:
    """Do nothing; to ignore the signal would be inherited by torchrun."""


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def become_rank(outputs: list[str], command: list[str]) -> int:
    """Print into the pipe of this rank from now on, and become the command."""
    output = outputs[int(os.environ["LOCAL_RANK"])]
    descriptor = os.open(output, os.O_WRONLY)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    os.environ[OUTPUT] = output
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        os.write(2, ("rung: cannot start %s: %s\n" % (command[0], error)).encode("utf-8", "replace"))
        return 127


def merge(rank: int, source: int) -> None:
    """Write the lines of a rank to the output, each whole, until all of its processes have ended."""
    prefix, rest = b"[rank%d]: " % rank, b""
    while True:
        block = os.read(source, READ_BYTES)
        rest += block
        end = 0
        for match in LINE.finditer(rest):
            write(prefixed(prefix, match.group()))
            end = match.end()
        rest = rest[end:]
        if rest and (not block or len(rest) > LONGEST):
            write(prefixed(prefix, rest + b"\n"))
            rest = b""
        if not block:
            return


def prefixed(prefix: bytes, line: bytes) -> bytes:
    """Return a line behind its rank; torch names the rank itself in front of an exception."""
    is_named = line.startswith(prefix.rstrip()) or not line.strip(b"\r\n")
    return line if is_named else prefix + line


def write(line: bytes) -> None:
    """Write one line by itself: the records of the first rank come in between."""
    with _writing:
        while line:
            try:
                line = line[os.write(1, line) :]
            except OSError:
                return  # nobody reads it any more, or the disk is full: the ranks must not wait for that


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
