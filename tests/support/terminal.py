"""Runs the installed `rung` on a real terminal, whose keys a test presses and whose output it reads."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import pace

BIN = Path(sys.executable).parent
# The size of the terminal counts, not that of the one where the tests were started.
NOT_INHERITED = ("COLUMNS", "LINES", "NO_COLOR")


class Terminal:
    """Our side of the terminal, and all that has come from the other one."""

    def __init__(self, side: int) -> None:
        self._side, self._output = side, b""

    def press(self, keys: str) -> None:
        os.write(self._side, keys.encode())

    def read_until(self, text: str) -> str:
        """Read on until a text has come, "" to the end; return all that has come since the test began."""
        patience = pace.Patience(60)
        while not text or text.encode() not in self._output:
            assert not patience.is_over(), f"{text!r} has not come: {self._output[-8000:]!r}"
            ready, _, _ = select.select([self._side], [], [], 0.1)
            if not ready:
                continue
            try:
                self._output += os.read(self._side, 65536)
            except OSError:  # Linux raises this when the other side is closed
                break
        return self._output.decode()


@contextmanager
def terminal(
    *words: str | Path, columns: int = 80, cwd: Path | None = None, code: int = 0, **env: str
) -> Iterator[Terminal]:
    """Run a command on a terminal of 24 rows; it has to end with this exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    process = subprocess.Popen(
        [BIN / "rung", *words],
        env={**inherited, "TERM": "xterm", **env},
        cwd=cwd,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        yield Terminal(ours)
        assert pace.wait(process, 60) == code
    finally:
        process.kill()
        process.wait()
        os.close(ours)
