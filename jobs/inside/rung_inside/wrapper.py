"""Owns the life of one attempt on its host: starts the command once, waits, and writes how it ended.

Runs as `python -I wrapper.py FOLDER`, standard library only, Python 3.8+. It leaves the process that started it, so it
survives the controller. It must not read the log or judge anything. FOLDER holds request.json; the wrapper adds

    claim.json    who this wrapper is (pid and start time); made once, so a second wrapper for the folder does nothing
    running.json  the command's process group
    done.json     the exit code or signal, written when the command is gone: the engine's word for "ended"
    log           everything the command prints
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1


def main(folder):
    # type: (str) -> int
    claimed, claiming = os.pipe()
    if os.fork():
        os.close(claiming)
        # Whoever started us waits for the claim and no longer; no byte means that none could be made.
        return 0 if os.read(claimed, 1) else 1
    os.setsid()
    mine = claim(folder)
    os.write(claiming, b"1")
    os.close(claiming)
    if not mine or os.path.exists(os.path.join(folder, "stop")):
        return 0
    with open(os.path.join(folder, "request.json"), encoding="utf-8") as file:
        request = json.load(file)
    with open(os.path.join(folder, "log"), "ab") as log:
        write(folder, "done.json", run(folder, request, log))
    return 0


def claim(folder):
    # type: (str) -> bool
    """Make claim.json, whole or not at all; False when another wrapper has it."""
    draft = os.path.join(folder, "claim.%d" % os.getpid())
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(dict(identity(os.getpid()), claimed_at=time.time()), file)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, os.path.join(folder, "claim.json"))
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)
    return True


def identity(pid):
    # type: (int) -> dict
    """Return what tells this process from a later one with the same pid: its start time and the boot it belongs to."""
    with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
        # The name in parentheses may hold anything; the fields after the last one are plain numbers.
        started = file.read().rpartition(")")[2].split()[19]
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return {"pid": pid, "started": int(started), "boot": file.read().strip()}


def run(folder, request, log):
    # type: (str, dict, object) -> dict
    """Run the command to its end and say how that was."""
    group = []  # type: list

    def forward(number, frame):
        # type: (int, object) -> None
        if group:
            kill(group[0], number)

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, forward)
    devnull = os.open(os.devnull, os.O_RDONLY)
    try:
        child = subprocess.Popen(
            request["argv"],
            cwd=request["cwd"],
            stdin=devnull,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: prepare(request["limits"]),
        )
    except (OSError, subprocess.SubprocessError) as error:
        os.write(log.fileno(), ("rung: cannot start %s: %s\n" % (request["argv"][0], error)).encode("utf-8", "replace"))
        return {"exit_code": 127, "signal": None, "ended_at": time.time()}
    group.append(child.pid)
    write(folder, "running.json", {"group": child.pid})
    code = child.wait()
    kill(child.pid, signal.SIGKILL)  # what the command left behind in its group
    return {"exit_code": code if code >= 0 else None, "signal": -code if code < 0 else None, "ended_at": time.time()}


def prepare(limits):
    # type: (dict) -> None
    """Set up the command's process just before it runs: a group of its own, an end with us, its limits."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if limits.get("memory"):
        # RLIMIT_DATA counts what a process really writes; RLIMIT_AS would count torch's reservations too.
        resource.setrlimit(resource.RLIMIT_DATA, (limits["memory"], limits["memory"]))
    if limits.get("cpus"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: limits["cpus"]])


def kill(group, number):
    # type: (int, int) -> None
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def write(folder, name, data):
    # type: (str, str, dict) -> None
    """Write a file whole or not at all."""
    draft = os.path.join(folder, "%s.%d" % (name, os.getpid()))
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(data, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(draft, os.path.join(folder, name))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
