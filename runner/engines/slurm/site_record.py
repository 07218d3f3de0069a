"""Reads what the wrappers of many attempts have left on the shared file system, with one command for all of them.

What a job can write is hostile: only plain files are opened, and only their beginning is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rung.jobs.model.errors import EngineError
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.terminal_text import clean
from rung.runner.hosts.nvidia_smi import parse_gpus
from rung.runner.seams.remote import Remote

LOOK_SECONDS = 60.0
# Two lines per folder, in their order: what is there, the size of the log, and the record; then the GPUs.
LOOK_SCRIPT = """
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
while IFS= read -r folder; do
  size=-
  if plain "$folder/log"; then size=$(stat -c %s "$folder/log" 2>/dev/null) || size=-; fi
  if plain "$folder/done.json"; then word=done text=$(head -c 600 "$folder/done.json")
  elif [ -e "$folder/done.json" ] || [ -L "$folder/done.json" ]; then word=strange text=
  elif plain "$folder/began"; then word=began text=$(head -c 600 "$folder/began")
  elif [ -d "$folder/claim" ]; then word=claimed text=
  else word=none text=
  fi
  printf '%s %s %s\\n' "$word" "${size:--}" "$(printf %s "$text" | tr '\\n' ' ')"
  if plain "$folder/gpus"; then head -c 1600 "$folder/gpus" | tr '\\n' ';'; fi
  echo
done
echo complete
"""
LINE = re.compile(r"(done|strange|began|claimed|none) (-|[0-9]{1,16}) (.*)", re.DOTALL)
BEGAN = re.compile(r"([0-9]{0,12}) ([0-9]{1,12}) (\S{0,200})\s*")
# Exit codes, and the seconds in which an end may be: until the year 9999.
CODES, SECONDS = range(-(1 << 31), 1 << 32), range(253402300800)


@dataclass(frozen=True)
class SiteRecord:
    """What the wrapper of one attempt has left."""

    began: bool = False
    started_at: float | None = None
    node: str | None = None
    exit_code: int | None = None
    ended_at: float | None = None
    # The cluster had said before that its time was nearly up.
    told: bool = False
    # There is something else than a plain file in place of the record.
    strange: bool = False
    # None: there is no log yet.
    log_size: int | None = None
    gpus: tuple[Gpu, ...] = ()
    # Its wrapper still prepares the start: it has not asked for the GPUs yet.
    prepares: bool = False

    @property
    def done(self) -> bool:
        return self.exit_code is not None


def look(remote: Remote, folders: Sequence[str]) -> list[SiteRecord]:
    """Return the records in these folders, in their order."""
    asked = "".join(f"{folder}\n" for folder in folders).encode()
    ran = remote.run(["sh", "-c", LOOK_SCRIPT, "rung"], asked, timeout=LOOK_SECONDS)
    lines = ran.out.decode("utf-8", "replace").split("\n")
    if ran.code != 0 or lines[2 * len(folders) :] != ["complete", ""]:
        why = clean(ran.err.decode("utf-8", "replace").strip()[-200:]) or f"exit code {ran.code}"
        raise EngineError(f"{remote.name}: the records of its jobs cannot be read: {why}")
    pairs = zip(lines[0 : 2 * len(folders) : 2], lines[1 : 2 * len(folders) : 2], strict=True)
    return [parse_record(line, gpus) for line, gpus in pairs]


def parse_record(line: str, gpus: str = "") -> SiteRecord:
    """Return what two lines of the script say. Pure."""
    # The driver's own messages are no GPUs, and are left out.
    return replace(_parse_line(line), gpus=parse_gpus(gpus.replace(";", "\n"))[0])


def _parse_line(line: str) -> SiteRecord:
    found = LINE.fullmatch(line)
    if found is None:
        return SiteRecord()
    word, size, text = found.groups()
    log_size = int(size) if size != "-" else None
    if word == "none":
        return SiteRecord(log_size=log_size)
    if word == "claimed":
        return SiteRecord(True, prepares=True, log_size=log_size)
    if word == "began":
        said = BEGAN.fullmatch(text)
        started_at, node = (float(said[2]), clean(said[3]) or None) if said else (None, None)
        return SiteRecord(True, started_at, node, log_size=log_size)
    return _ended(text, log_size) if word == "done" else SiteRecord(True, strange=True, log_size=log_size)


def _ended(text: str, log_size: int | None) -> SiteRecord:
    try:
        data = json.loads(text)
        numbers = [data[name] for name in ("exit_code", "ended_at", "began_at")]
        node, told = data["node"], data["told"] is True
    except (ValueError, TypeError, KeyError, RecursionError):
        return SiteRecord(True, strange=True, log_size=log_size)
    code, ended_at, began_at = numbers
    if not (_is_number(code, CODES) and _is_number(ended_at, SECONDS) and _is_number(began_at, SECONDS)):
        return SiteRecord(True, strange=True, log_size=log_size)
    name = clean(node)[:200] if isinstance(node, str) and node else None
    return SiteRecord(True, float(began_at), name, code, float(max(ended_at, began_at)), told, log_size=log_size)


def _is_number(value: Any, bounds: range) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in bounds
