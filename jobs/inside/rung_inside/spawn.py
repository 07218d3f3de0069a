"""Starts a program for the wrapper, with little memory: standard library only, Python 3.8+.

The module subprocess does this too. It imports threading, which does something in every fork: a wrapper would have half
as much memory again.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable


def spawn(argv: list[str], variables: dict[str, str], out: int, errors: int, prepare: Callable[[], None]) -> int:
    """Start a program without input and return its pid; an OSError says why it cannot be started."""
    failed, failing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            replace_process(argv, variables, (os.open(os.devnull, os.O_RDONLY), out, errors), prepare, failing)
        except BaseException as error:
            os.write(failing, str(error).encode("utf-8", "replace")[:4000])
        finally:
            os._exit(127)
    os.close(failing)
    # Its end is closed when the program runs.
    why = os.read(failed, 4096)
    os.close(failed)
    if why:
        wait(pid)
        raise OSError(why.decode("utf-8", "replace"))
    return pid


def replace_process(
    argv: list[str], variables: dict[str, str], files: tuple[int, int, int], prepare: Callable[[], None], failing: int
) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these
        signal.signal(number, signal.SIG_DFL)
    prepare()
    for descriptor in [int(name) for name in os.listdir("/proc/self/fd")]:
        if descriptor > 2 and descriptor != failing:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    try:
        os.execvpe(argv[0], argv, variables)  # noqa: S606 (the command of the job)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), argv[0]) from None


def wait(pid: int) -> int:
    """Wait for a process; return its exit code, or the signal that ended it as a negative number."""
    status = os.waitpid(pid, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
