"""Keeps versions of a checkpoint file from outside, whoever writes it, in whatever language.

Runs beside the command, as `python -I version_watch.py`, with the variables of the job: standard library only, Python
3.8+. `--once`: the command has ended, so the file is kept as it is.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from importlib import import_module
from typing import Any

LOOK_SECONDS = 0.2
# A file that is not written to for this long is whole. Code inside the job keeps a file by itself, and knows its step.
SETTLED_SECONDS = 2.0
INSIDE_MODES = ("zero-edit", "watch", "inside")
# How a zip archive begins and ends, as torch.save writes them: the end is written last.
BEGINNING, ENDING, ENDING_BYTES = b"PK\x03\x04", b"PK\x05\x06", 22
# The errors that are in the log already.
_told: list[str] = []


def main(arguments: list[str]) -> int:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    kept = import_module("rung_inside.contract.kept_versions")
    path = kept.watched_file()
    if path is None:
        return 0
    if "--once" in arguments:
        keep(kept, path)
        return 0
    watch(kept, path)
    return 0


def watch(kept: Any, path: str) -> None:
    """Keep every version of the file that is seen whole, until this process is ended."""
    done: Any = None
    seen: Any = None
    since = 0.0
    patient = os.environ.get("RUNG_MODE") in INSIDE_MODES
    while True:
        now = facts(path)
        if now != seen:
            seen, since = now, time.monotonic()
        settled = time.monotonic() - since >= SETTLED_SECONDS
        if now is not None and now != done and (settled or (not patient and ends_like_an_archive(path))):
            done = now if keep(kept, path) else done
        time.sleep(LOOK_SECONDS)


def keep(kept: Any, path: str) -> bool:
    """Keep the file; a disk that is full, or a file that has just gone, is no reason to disturb the job."""
    try:
        return kept.keep(path) is not None
    except OSError as error:
        text = "rung: no version of %s could be kept: %s\n" % (path, error.strerror)
        if os.path.exists(path) and text not in _told:
            _told.append(text)
            os.write(1, text.encode("utf-8", "replace"))
        return False


def facts(path: str) -> Any:
    """Return what changes when a file is written; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None  # to open a pipe would wait for its other end
    return found.st_ino, found.st_size, found.st_mtime_ns


def ends_like_an_archive(path: str) -> bool:
    """Return whether this is an archive of torch.save that has its end."""
    try:
        with open(path, "rb") as file:
            if file.read(len(BEGINNING)) != BEGINNING:
                return False
            file.seek(-ENDING_BYTES, os.SEEK_END)
            return file.read(len(ENDING)) == ENDING
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
