"""Owns the records: one line each in the job's log, `rung| WORD key=value ...`, which people can read past.

Writes and flushes lines, nothing else. Only the first rank of a distributed run speaks.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

PREFIX = "rung|"
# Text that a reader splitting on spaces and on the first "=" gets back unchanged.
PLAIN = re.compile(r"[A-Za-z0-9_./:+@%,~-]+")

_said: dict[str, Any] = {}


def first_rank() -> bool:
    """Tell whether this process speaks and saves for the run; torchrun and its kin set RANK, spawned ranks do not."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return bool(distributed.get_rank() == 0)
    return os.environ.get("RANK", "0") in ("", "0")


def text_of(value: Any) -> str:
    """Return a value as it stands in a record: numbers bare, plain words bare, any other text JSON-quoted."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return value if PLAIN.fullmatch(value) else json.dumps(value)
    return text_of(_number(value))


def _number(value: Any) -> float | str:
    """Return what a tensor or numpy scalar holds as a Python number, or any other thing's text."""
    try:
        number: float = value.item()
    except (AttributeError, RuntimeError, ValueError):
        return str(value)
    return number


def line(word: str, values: Mapping[str, Any]) -> str:
    """Return one record; values that are None are left out."""
    pairs = [f"{key}={text_of(value)}" for key, value in values.items() if value is not None]
    return " ".join([PREFIX, word, *pairs])


def short(value: float) -> float:
    """Return a measured number with the six digits that are worth a reader's eye."""
    return float(f"{value:.6g}")


def emit(word: str, **values: Any) -> None:
    """Write one record, whole and at once."""
    if first_rank():
        write(line(word, values) + "\n")


def write(text: str) -> None:
    """Write whole lines to the attempt's log, or where that is not known to where the script prints."""
    if not _to_the_log(text):
        sys.stdout.write(text)
        sys.stdout.flush()


def errors_go_elsewhere() -> bool:
    """Tell whether what is printed as an error does not reach the attempt's log."""
    log = os.environ.get("RUNG_LOG", "")
    # In a container the log is made of both outputs of its first process.
    reached = [log, "/proc/1/fd/2"] if log.startswith("/proc/1/") else [log]
    try:
        here = os.fstat(sys.stderr.fileno())
        return bool(log) and not any(os.path.samestat(here, os.stat(path)) for path in reached)
    except (OSError, ValueError, AttributeError):
        return False


def _to_the_log(text: str) -> bool:
    """Write to the attempt's own log where that is known: the script's shell may have sent its output elsewhere."""
    path = os.environ.get("RUNG_LOG")
    if not path:
        return False
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    try:
        # Never made by us: a path that is not there belongs to another machine or container.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    except (OSError, ValueError):
        return False
    try:
        return os.write(descriptor, text.encode("utf-8")) > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)


def say_knobs(values: Mapping[str, Any]) -> None:
    """Write the effective knobs when they differ from what was last said."""
    if dict(values) != _said.get("knobs"):
        _said["knobs"] = dict(values)
        emit("knobs", **values)


def metric(step: int, **values: Any) -> None:
    """Report any named values, such as val_loss, at a step."""
    emit("metric", step=step, **values)
