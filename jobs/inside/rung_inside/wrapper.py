"""Runs one attempt on its host: starts the command once, waits, and records how it ended.

Runs as `python -I wrapper.py FOLDER [CORE...]`, standard library only, Python 3.8+. It is no child of the process that
started it, so it survives the controller; on the controller's machine wrapper_server.py forks it instead. It does not
read the log. `--end FOLDER` kills what a killed wrapper left; `--stacks FOLDER` asks the processes of the command to
write their stacks into the log.
FOLDER holds request.json; the wrapper adds

    claim.json    who this wrapper is (pid and start time); made once, so a second wrapper for the folder does nothing
    running.json  the command's process group
    done.json     the exit code or signal, written when the command is gone; the engine then knows that it has ended
    log           everything the command prints
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from rung_inside.spawn import spawn, wait

PR_SET_PDEATHSIG = 1
# Only in the environment of the command, so that processes left behind by the job can be found.
MARK = "RUNG_FOLDER"
# Room for the longest completion record.
DONE_BYTES = 256
# A process may fork while the others are killed; one that forks faster than this is not caught.
SWEEPS = 20
# The signal at which Python processes of the job write their stacks (stacks.py), and the time that one gets for it, so
# that those of two processes are not mixed. So many show enough.
STACKS, STACKS_SECONDS, MOST_STACKS = 44, 0.1, 32
# How a command ends that was killed by SIGKILL, and how a shell reports it.
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


def main(arguments: list[str]) -> int:
    if arguments[0] == "--end":
        end_leftovers(arguments[1])
        return 0
    if arguments[0] == "--stacks":
        return 0 if ask_for_stacks(arguments[1]) else 1
    return start(arguments[0], [int(core) for core in arguments[1:]])


def start(folder: str, cores: list[int]) -> int:
    """Go on in a new process, and return as soon as the claim is made or given up."""
    if cores:
        bind(cores)
    claimed, claiming = os.pipe()
    if os.fork():
        os.close(claiming)
        # The caller waits only for the claim; no byte means that none could be made.
        return 0 if os.read(claimed, 1) else 1
    os.setsid()
    run_attempt(folder, claiming, dict(os.environ))
    return 0


def run_attempt(folder: str, claiming: int, variables: dict[str, str]) -> None:
    """Claim the attempt, say so with a byte, run its command unless another wrapper does, and record how it ended."""
    mine = claim(folder)
    with contextlib.suppress(OSError):  # whoever waited for it may be dead; the attempt is not
        os.write(claiming, b"1")
    os.close(claiming)
    if not mine or os.path.exists(os.path.join(folder, "stop")):
        return
    with open(os.path.join(folder, "request.json"), "rb") as file:
        request = json.loads(file.read().decode("utf-8"))
    # The space is reserved now, so that a run that filled the disk can still record how it ended.
    write(folder, "done.draft", b" " * DONE_BYTES)
    try:
        with open(os.path.join(folder, "log"), "ab") as log:
            ending = run(folder, request, log.fileno(), variables)
            end_leftovers(folder)
            keep_version(log.fileno(), variables)
    except OSError:  # the log could not even say why: the machine's fault, which is what an end without a record means
        remove(os.path.join(folder, "done.draft"))
        raise
    with open(os.path.join(folder, "done.draft"), "r+b") as file:
        file.write(json.dumps(ending).encode("ascii"))
        file.flush()
        os.fsync(file.fileno())
    os.rename(os.path.join(folder, "done.draft"), os.path.join(folder, "done.json"))


def bind(cores: list[int]) -> None:
    """Bind this process, and with it all that it starts, to cores that the engine has chosen.

    Before the claim: whoever starts another attempt after it sees which cores are taken.
    """
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cores)


def claim(folder: str) -> bool:
    """Make claim.json, whole or not at all; False if another wrapper made it first."""
    draft = os.path.join(folder, "claim.%d" % os.getpid())
    try:
        with open(draft, "wb") as file:
            file.write(json.dumps(dict(identity(os.getpid()), claimed_at=time.time())).encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, os.path.join(folder, "claim.json"))
    except FileExistsError:
        return False
    finally:
        remove(draft)
    return True


def identity(pid: int) -> dict[str, Any]:
    """Return what distinguishes this process from a later one with the same pid: its start time and the boot id."""
    with open("/proc/%d/stat" % pid, "rb") as file:
        # The name in parentheses may hold anything; the fields after the last one are plain numbers.
        started = file.read().rpartition(b")")[2].split()[19]
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        return {"pid": pid, "started": int(started), "boot": file.read().strip().decode("ascii")}


def run(folder: str, request: dict[str, Any], log: int, variables: dict[str, str]) -> dict[str, Any]:
    """Run the command and return how it ended."""
    group: list[int] = []

    def forward(number: int, frame: object) -> None:
        if group:
            kill(group[0], number)

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, forward)
    before, marked = oom_kills(), dict(variables, **{MARK: folder})
    try:
        group.append(spawn(request["argv"], marked, log, log, lambda: prepare(folder, request)))
    except OSError as error:
        os.write(log, ("rung: cannot start %s: %s\n" % (request["argv"][0], error)).encode("utf-8", "replace"))
        return {"exit_code": 127, "signal": None, "ended_at": time.time()}
    watches = [each for each in (watch_hands(log, variables), watch_versions(log, variables)) if each is not None]
    code = wait(group[0])
    for watch in watches:
        os.kill(watch, signal.SIGKILL)
        wait(watch)
    if code in KILLED and oom_kills() > before:
        with contextlib.suppress(OSError):  # how it ended is recorded all the same
            os.write(log, b"rung: the kernel killed a process: out of memory\n")
    return {"exit_code": code if code >= 0 else None, "signal": -code if code < 0 else None, "ended_at": time.time()}


def watch_hands(log: int, variables: dict[str, str]) -> int | None:
    """Start the process that looks for a Python of the job which zero-edit cannot reach; a job can do without it."""
    if variables.get("RUNG_MODE") != "zero-edit":
        return None
    return start_beside(log, variables, "hands_watch.py", str(os.getsid(0)))


def watch_versions(log: int, variables: dict[str, str]) -> int | None:
    """Start the process that keeps versions of a checkpoint file which every save overwrites."""
    one_file = "*" not in variables.get("RUNG_CHECKPOINT_PATTERN", "*")
    return start_beside(log, variables, "version_watch.py") if one_file else None


def keep_version(log: int, variables: dict[str, str]) -> None:
    """Keep what the last save wrote, when nothing of the job runs any more."""
    if "*" not in variables.get("RUNG_CHECKPOINT_PATTERN", "*"):
        last = start_beside(log, variables, "version_watch.py", "--once")
        if last is not None:
            wait(last)


def start_beside(log: int, variables: dict[str, str], name: str, *arguments: str) -> int | None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        return spawn([sys.executable, "-I", program, *arguments], variables, log, devnull, die_with_parent)
    except OSError:
        return None
    finally:
        os.close(devnull)


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def oom_kills() -> int:
    """Return how many processes of this control group the kernel has killed because memory ran out; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/cgroup", "rb") as file:
            groups = [line.split(":", 2) for line in os.fsdecode(file.read()).splitlines()]
        for _, kinds, path in groups:
            name = "%s/memory.events" % path if not kinds else "/memory%s/memory.oom_control" % path
            if not kinds or "memory" in kinds.split(","):
                with contextlib.suppress(OSError), open("/sys/fs/cgroup" + name, "rb") as file:
                    return sum(int(line.split()[1]) for line in file if line.startswith(b"oom_kill "))
    return 0


def prepare(folder: str, request: dict[str, Any]) -> None:
    """Prepare the process of the command: its folder and group, killed with the wrapper, with its limits."""
    limits = request["limits"]
    os.chdir(request["cwd"])
    os.setpgid(0, 0)
    die_with_parent()
    # A shell has the programs that it starts in the background ignore SIGINT and SIGQUIT, and so their controller does.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if limits.get("memory"):
        # RLIMIT_DATA counts what a process writes; RLIMIT_AS also counts what torch only reserves.
        resource.setrlimit(resource.RLIMIT_DATA, (limits["memory"], limits["memory"]))
    if limits.get("cpus"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: limits["cpus"]])
    # Before the command does anything: whoever has seen its output can stop it.
    write(folder, "running.json", json.dumps({"group": os.getpid()}).encode("ascii"))


def kill(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def end_leftovers(folder: str) -> None:
    """Kill every process with the attempt's mark in its environment, whatever its group."""
    for _ in range(SWEEPS):
        found = processes(folder)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def ask_for_stacks(folder: str) -> int:
    """Ask every process of the command that can show its stacks for them; return how many there are."""
    ready = [pid for pid in processes(folder) if shows_stacks(pid)][:MOST_STACKS]
    with open(os.path.join(folder, "log"), "ab") as log:
        log.write(b"rung: no sign of life; the stacks of all threads of its Python processes follow\n")
    for pid in ready:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, STACKS)
        time.sleep(STACKS_SECONDS)
    return len(ready)


def shows_stacks(pid: int) -> bool:
    """Return whether a process has a handler for the signal, which would end it otherwise."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/%d/status" % pid, "rb") as file:
        caught = [line.split()[1] for line in file if line.startswith(b"SigCgt:")]
        return bool(int(caught[0], 16) >> (STACKS - 1) & 1)
    return False


def processes(folder: str) -> list[int]:
    """Return the processes with the attempt's mark in their environment, whatever their group."""
    mark = f"{MARK}={folder}".encode("utf-8", "surrogateescape")
    return [pid for pid in sorted(map(int, filter(str.isdigit, os.listdir("/proc")))) if carries(pid, mark)]


def carries(pid: int, mark: bytes) -> bool:
    if pid == os.getpid():
        return False
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:  # gone, or another user's
        return False


def write(folder: str, name: str, data: bytes) -> None:
    """Write a file whole or not at all."""
    draft = os.path.join(folder, "%s.%d" % (name, os.getpid()))
    try:
        with open(draft, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(draft, os.path.join(folder, name))
    except OSError:
        remove(draft)
        raise


def remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
