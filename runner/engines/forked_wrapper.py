"""Asks the server of a home to fork the wrapper of an attempt, and makes that server where there is none.

A forked wrapper has a tenth of the memory of one with an interpreter of its own. Whatever goes wrong, the attempt can
be started in the other way: only one wrapper can claim it.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from rung.jobs.model.paths import AttemptPaths
from rung.runner.files.inside import WRAPPER
from rung.runner.state.home import umask_of_jobs

SERVER = WRAPPER.with_name("wrapper_server.py")
# A fork takes milliseconds; a server that needs longer is stopped, or the machine is in trouble.
ANSWER_SECONDS = 10.0
# A server that is about to end is in the way of the next one for a moment.
TRIES, PAUSE_SECONDS = 5, 0.02
# After a failure wrappers are started in the other way for so long.
REST_SECONDS = 60.0
# Forks show their own words and variables where those of the server were, if these leave room.
ROOM = {"RUNG_ROOM": "." * 250}
ROOM_FOR_WORDS = "." * 250
# What a process has from the one that started it, and a job therefore from its server.
INHERITED = ("Uid", "Gid", "Groups", "Cap", "NoNewPrivs", "Seccomp", "Cpus_allowed_list", "Mems_allowed_list")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
LIMITS = sorted(value for name, value in vars(resource).items() if name.startswith("RLIMIT_"))
_MAKING = threading.Lock()
_rest_until: dict[Path, float] = {}


def fork_wrapper(paths: AttemptPaths, cores: Sequence[int], env: Mapping[str, str]) -> bool:
    """Return whether a forked wrapper has found the attempt claimed, by itself or another one."""
    home = _home(paths)
    if home is None or time.monotonic() < _rest_until.get(home, 0.0):
        return False
    try:
        request = _request(str(paths.folder), cores, env)
        with closing(_connection(home / f"wrappers-{_key()}")) as connection:
            connection.sendall(request)
            return connection.recv(1) == b"1"
    except (OSError, AttributeError, subprocess.SubprocessError):  # AttributeError: a Python without Unix sockets
        _rest_until[home] = time.monotonic() + REST_SECONDS
        return False


def _home(paths: AttemptPaths) -> Path | None:
    """Return the home that an attempt is in; None where it has none, or where its names could not be passed on."""
    parents = paths.folder.parents
    in_home = len(parents) > 3 and (parents[0].name, parents[2].name) == ("attempts", "jobs")
    return paths.home if in_home and sys.getfilesystemencoding() == "utf-8" else None


def _request(folder: str, cores: Sequence[int], env: Mapping[str, str]) -> bytes:
    """Return words that each end with a zero byte: none can contain one, and only the last one is empty."""
    variables = [f"{name}={value}" for name, value in env.items()]
    words = [folder, str(Path.cwd()), str(_umask()), " ".join(map(str, cores)) or "-", *variables]
    if any("\0" in word for word in words) or any(not name or "=" in name for name in env):
        raise ValueError("embedded null byte, or illegal environment variable name")
    return b"".join(os.fsencode(word) + b"\0" for word in words) + b"\0"


def _umask() -> int:
    umask = umask_of_jobs()
    return umask if umask != -1 else int(_status()["Umask"], 8)


def _status() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _key() -> str:
    """Return a name for a server that runs this code, and whose forks have what children of this process would."""
    status = _status()
    facts = [
        sys.executable,
        sys.version,
        [value for name, value in status.items() if name.startswith(INHERITED)],
        [resource.getrlimit(limit) for limit in LIMITS],
        [os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)],
        [_link(f"/proc/self/ns/{name}") for name in NAMESPACES],
        [Path(f"/proc/self/{name}").read_text(encoding="utf-8") for name in ("cgroup", "oom_score_adj")],
        [path.read_text(encoding="utf-8") for path in (WRAPPER, SERVER)],
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:  # a kernel without this kind
        return ""


def _connection(folder: Path) -> socket.socket:
    """Return a connection to the server in a folder, which is made if none answers."""
    for _ in range(TRIES):
        with suppress(FileNotFoundError, ConnectionRefusedError):
            return _connected(folder)
        with _MAKING:
            # Another thread may have made it.
            with suppress(FileNotFoundError, ConnectionRefusedError):
                return _connected(folder)
            _make_server(folder)
    return _connected(folder)


def _connected(folder: Path) -> socket.socket:
    kind = socket.AF_UNIX
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    connection = socket.socket(kind, socket.SOCK_STREAM)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(f"{folder}: others have access to it")
        connection.settimeout(ANSWER_SECONDS)
        # However long the path of the folder is, this one is short enough for a socket.
        connection.connect(f"/proc/self/fd/{descriptor}/socket")
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user != os.geteuid():
            raise PermissionError(f"{folder}: the server is another user's")
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(descriptor)
    return connection


def _make_server(folder: Path) -> None:
    """Start a server, which no longer is our child when it can be connected to."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(SERVER), str(folder), ROOM_FOR_WORDS],
        env=ROOM,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=ANSWER_SECONDS,
        start_new_session=True,
        umask=0o077,
    )
    if done.returncode:
        time.sleep(PAUSE_SECONDS)
