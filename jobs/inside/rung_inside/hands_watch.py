"""Looks for a Python of the job that has loaded torch and that zero-edit cannot reach, and records why.

Runs beside the command, as `python -I hands_watch.py [SESSION]`, with the variables of the job: standard library only,
Python 3.8+. It looks at the processes of one session, or at all, as in a container. It reads /proc and nothing else,
and ends after its one record. What it finds is a hint: a job can hide from it, or look like one that does.
"""

from __future__ import annotations

import os
import sys
import time

# Looks come after 1, 2, 4 ... seconds, and then this often: data may be prepared for hours before the training.
SLOWEST = 256
# Options of Python before which no script has begun, and those that are followed by a value.
ISOLATING, WITH_VALUE, LAST = "IES", "WX", "cm"


def main(arguments: list[str]) -> None:
    session = arguments[0] if arguments else None
    inside, pause = os.environ.get("PYTHONPATH", "").split(os.pathsep)[0], 1
    while True:
        time.sleep(pause)
        pause = min(2 * pause, SLOWEST)
        for reason in filter(None, (why_none(pid, inside) for pid in processes(session))):
            # In one piece, on a line of its own.
            os.write(1, f"rung| hands none {reason}\n".encode())
            return


def processes(session: str | None) -> list[int]:
    """Return the processes of a session; all but this one if it is None."""
    found = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    return [pid for pid in found if session is None or session_of(pid) == session]


def session_of(pid: int) -> str:
    # The name in parentheses may hold anything; the fields after it are plain numbers.
    return (read(pid, "stat").rpartition(b")")[2].split() + [b""] * 4)[3].decode("ascii", "replace")


def why_none(pid: int, inside: str) -> str:
    """Return why zero-edit is not in a process that has loaded torch; "" for any other process."""
    if not is_python(pid):
        return ""
    flag = isolating_flag(read(pid, "cmdline").split(b"\0"))
    reason = f"why=isolated flag=-{flag}" if flag else ""
    if not flag and not has_variables(read(pid, "environ").split(b"\0"), inside):
        reason = "why=environment_cleared"
    return reason if reason and b"libtorch" in read(pid, "maps") else ""


def is_python(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink("/proc/%d/exe" % pid)).startswith("python")
    except OSError:  # gone, or another user's
        return False


def isolating_flag(command: list[bytes]) -> str:
    """Return the option by which Python ignores PYTHONPATH or sitecustomize: I, E or S; "" if there is none."""
    words = iter(each.decode("utf-8", "replace") for each in command[1:])
    for word in words:
        if not word.startswith("-") or word.startswith("--") or word == "-":
            return ""
        for index, letter in enumerate(word[1:], 2):
            if letter in ISOLATING:
                return letter
            if letter in LAST:
                return ""
            if letter in WITH_VALUE:
                if index == len(word):
                    next(words, None)
                break
    return ""


def has_variables(environ: list[bytes], inside: str) -> bool:
    """Return whether a process was started with the variables by which zero-edit reaches it."""
    paths = [each[len(b"PYTHONPATH=") :] for each in environ if each.startswith(b"PYTHONPATH=")]
    folders = [os.fsdecode(each) for path in paths for each in path.split(os.fsencode(os.pathsep))]
    return b"RUNG_MODE=zero-edit" in environ and inside in folders


def read(pid: int, name: str) -> bytes:
    """Return a file of a process; nothing if it is gone or another user's."""
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as file:
            return file.read()
    except OSError:
        return b""


if __name__ == "__main__":
    main(sys.argv[1:])
