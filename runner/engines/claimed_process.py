"""Reads who has claimed an attempt on this machine, and tells whether that process still runs.

Attempts are looked at again and again: what cannot change is kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rung.jobs.model.errors import EngineError

# Far more than attempts run at once on one machine.
MOST_KEPT = 20_000
_claims: dict[str, tuple[tuple[int, int, int], dict[str, Any]]] = {}


def read_claim(folder: Path) -> dict[str, Any] | None:
    """Return the claim of an attempt, None if there is none; it is read once, unless its file becomes another one."""
    path = f"{folder}/claim.json"
    try:
        found = os.stat(path)  # noqa: PTH116 (a third of the time)
    except OSError:
        return read_record(path)
    kept, now = _claims.get(path), (found.st_ino, found.st_size, found.st_mtime_ns)
    if kept is None or kept[0] != now:
        claim = read_record(path)
        if claim is None:
            return None
        if len(_claims) >= MOST_KEPT:
            _claims.clear()
        kept = _claims[path] = (now, claim)
    return kept[1]


def forget_claim(folder: Path) -> None:
    """Keep nothing of an attempt that has ended."""
    _claims.pop(f"{folder}/claim.json", None)


def read_record(path: str | Path) -> dict[str, Any] | None:
    """Return a record that the wrapper has left, None if there is none."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (a third of the time)
            data: dict[str, Any] = json.loads(file.read())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise EngineError(f"{path}: cannot be read: {error}") from None
    return data


def is_alive(claim: Mapping[str, Any]) -> bool:
    """Tell whether the process that made the claim still runs. Its pid alone does not tell."""
    if claim["boot"] != boot():
        return False
    try:
        descriptor = os.open(f"/proc/{claim['pid']}/stat", os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        # The name in parentheses may contain anything; it ends with the last of them.
        fields = os.read(descriptor, 4096).rpartition(b")")[2].split(None, 20)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return int(fields[19]) == claim["started"] and fields[0] != b"Z"


@cache
def boot() -> str:
    """Return the id of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
