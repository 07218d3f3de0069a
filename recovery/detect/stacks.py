"""Reads the stacks that a hanging process wrote into its log: where in the program it stands."""

from __future__ import annotations

import re

# As faulthandler writes them, the innermost frame first.
_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]{1,16}\b.{0,100} \(most recent call first\):$")
_FRAME = re.compile(r'^  File "([^"]{1,400})", line (\d{1,9}) in (.{1,200})$')
# Frames of Python itself, of installed packages and of Rung do not show what the program waits for.
_SEPARATOR = re.compile(r"[/\\]")
_NOT_ITS_OWN = re.compile(r"[/\\](?:lib[/\\]python3|(?:site|dist)-packages|rung_inside)|^<")


def standing_at(text: str) -> str:
    """Return where the first process stands, as `train.py:31 in next_batch`; "" if there is no stack.

    The thread that took the signal is the main one, unless that is in no state to do so.
    """
    threads = _threads(text.splitlines())
    current = [frames for name, frames in threads if name == "Current thread" and frames]
    frames = next(iter(current or [frames for _, frames in threads if frames]), [])
    own = next((frame for frame in frames if not _NOT_ITS_OWN.search(frame[0])), None)
    if own is None:
        return _place(frames[0]) if frames else ""
    inner = f", in {_place(frames[0])}" if frames[0] != own else ""
    return f"{_place(own)}{inner}"


def _threads(lines: list[str]) -> list[tuple[str, list[tuple[str, str, str]]]]:
    threads: list[tuple[str, list[tuple[str, str, str]]]] = []
    for line in lines:
        if begins := _THREAD.match(line):
            threads.append((begins[1], []))
        elif threads and (frame := _FRAME.match(line)):
            threads[-1][1].append((frame[1], frame[2], frame[3]))
    return threads


def _place(frame: tuple[str, str, str]) -> str:
    path, line, function = frame
    return f"{_SEPARATOR.split(path)[-1]}:{line} in {function}"
