"""Writes records to the job's log, one line each: `rung| KIND key=value ...`.

Only the first rank of a distributed run writes, except for replays. The kinds, and what each tells the controller:

    hands torch=2.9.0 python=3.11.7             Rung's code is installed in this process and can set the knobs
    hands none why=WORD [key=value ...]         it is not, for this reason (REASONS)
    end updates=123                             the process ended, or is about to, after so many updates
    course number=2 step=501 why=WORD           from this step on the losses are those of another course (WORD:
                                                new_model, new_optimizer)
    step step=7 loss=... [optimizer=2]          an update; `optimizer` where it is not the one that is followed
    places updates=64 ran=head.norm:64,loss:64 saturated=0 clamped=0
                                                how often each place ran in FP32, in how many updates numbers were
                                                saturated on their way out, and how many constants were clamped
    constant value=-1e+09 function=masked_fill file=train.py line=12
                                                a line of the script whose number was clamped, once for each line
    near updates=64 watched=8 activations=head.norm:12400 gradients=head.out:30208
                                                the modules that came near FP16's limit, with their largest numbers
    tracker link="http://..."                   the run of MLflow, on a server, that the script has begun
    not_whole why=TEXT                          what Rung could not save, or bring back from a checkpoint of its own
    knobs, resumed, saved, metric, replay, note, usage
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rung_inside.contract import asked_knobs

PREFIX = "rung|"
# Text that survives a reader who splits on spaces and on the first "=".
PLAIN = re.compile(r"[A-Za-z0-9_./:+@%,~-]+")

# Why there are no hands: a part of Rung could not be installed; Rung could not start; the Python is too old; backward
# passes come and no optimizer steps; Python was started with -I, -E or -S; a launcher has removed the variables.
REASONS = ("part_failed", "not_started", "python_too_old", "no_update", "isolated", "environment_cleared")
# Set for the processes that this one starts, so that they do not repeat that there are hands.
HANDS_REPORTED = "RUNG_HANDS_REPORTED"

# The environment as it is, in bytes: `os.environ` makes five Python calls for each look.
_variables: Any = getattr(os.environb, "_data", os.environb)

# `emit_lines` asks whether this is the first rank for its first calls and then for every so many: asking torch takes
# longer than a record, and a script knows its ranks before it trains.
ASKED_FIRST, ASKED_EVERY = 64, 16

_last_reported: dict[str, Any] = {}
# `held`: the records of a `together` block, until it ends; `speaks`: whether this process writes them, once asked.
_thread = threading.local()


class _Speaking:
    """Whether this process was the first rank when `emit_lines` last asked, and how often it was called."""

    asked = 0
    is_first_rank = True


_speaking = _Speaking()
# Returns the text of records that wait to be written, and forgets it; any other record comes after them.
_take_waiting: list[Callable[[], str]] = [str]
_written_at = [-math.inf]


def is_first_rank() -> bool:
    """Return whether this process reports and saves for the run; torchrun sets RANK, spawned ranks do not have it."""
    # None too where this torch cannot be distributed.
    is_initialized = getattr(sys.modules.get("torch.distributed"), "is_initialized", None)
    if is_initialized is not None and is_initialized():
        return bool(sys.modules["torch.distributed"].get_rank() == 0)
    return _variables.get(b"RANK", b"0") in (b"", b"0")


def _rank() -> str:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return str(distributed.get_rank())
    return os.environ.get("RANK", "")


def text_of(value: Any) -> str:
    """Return a value as text for a record: numbers and plain words as they are, other text JSON-quoted."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return value if PLAIN.fullmatch(value) else json.dumps(value)
    return text_of(_number(value))


def _number(value: Any) -> float | str:
    """Return a tensor or numpy scalar as a Python number, and other values as text."""
    try:
        number: float = value.item()
    except (AttributeError, RuntimeError, ValueError):
        return str(value)
    return number


def line(kind: str, values: Mapping[str, Any]) -> str:
    """Return one record without the values that are None."""
    words = [PREFIX, kind]
    for key, value in values.items():
        # Most values are numbers, and most updates of a short run are reported.
        if type(value) is float or type(value) is int:
            words.append(f"{key}={value!r}")
        elif value is False:
            words.append(f"{key}=0")
        elif value is not None:
            words.append(f"{key}={text_of(value)}")
    return " ".join(words)


def short(value: float) -> float:
    """Return a measured number rounded to six digits."""
    return float(f"{value:.6g}")


def emit(kind: str, **values: Any) -> None:
    """Write one record, whole and at once, or with the others of a `together` block."""
    held = getattr(_thread, "held", None)
    if held is not None:
        # Once for the block, if it has records: asking torch takes longer than a record.
        if _thread.speaks is None:
            _thread.speaks = is_first_rank()
        if _thread.speaks:
            held.append(line(kind, values) + "\n")
    elif is_first_rank():
        write(line(kind, values) + "\n")


def emit_lines(text: str) -> None:
    """Write records that are lines already, as `emit` does, with fewer calls: for those that come in every update."""
    _speaking.asked += 1
    if _speaking.asked <= ASKED_FIRST or not _speaking.asked % ASKED_EVERY:
        _speaking.is_first_rank = is_first_rank()
    if not _speaking.is_first_rank:
        return
    held = getattr(_thread, "held", None)
    if held is not None:
        held.append(text)
    else:
        write(text)


def emit_from_any_rank(kind: str, **values: Any) -> None:
    """Write a record of a fault that perhaps only this rank has; another one than the first names itself."""
    if is_first_rank():
        emit(kind, **values)
    else:
        write(line(kind, {**values, "rank": _rank()}) + "\n")


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Write the records of this block by one write at its end: opening the log costs more than a record."""
    if getattr(_thread, "held", None) is not None:
        yield
        return
    _thread.held, _thread.speaks = [], None
    try:
        yield
    finally:
        write_held()
        _thread.held = None


def write_held() -> None:
    """Write what a `together` block holds, before something that may not come back."""
    held = getattr(_thread, "held", None)
    if held:
        text = "".join(held)
        held.clear()
        write(text)


def write(text: str) -> None:
    """Write whole lines to the attempt's log, where a shell may have sent stdout elsewhere; to stdout without one."""
    text = _take_waiting[0]() + text
    _written_at[0] = time.monotonic()
    path = _variables.get(b"RUNG_LOG")
    if path and _append(path, text):
        return
    sys.stdout.write(text)
    sys.stdout.flush()


def write_first(take: Callable[[], str]) -> None:
    """Write the text that `take` returns before anything else, whenever something is written."""
    _take_waiting[0] = take


def seconds_since_write() -> float:
    return time.monotonic() - _written_at[0]


def stderr_bypasses_log() -> bool:
    """Return whether stderr does not reach the attempt's log."""
    log = os.environ.get("RUNG_LOG", "")
    # In a container the log has both outputs of the first process.
    reached = [log, "/proc/1/fd/2"] if log.startswith("/proc/1/") else [log]
    # The output of a rank, which ranks.py writes to the log.
    reached += [os.environ["RUNG_OUTPUT"]] if "RUNG_OUTPUT" in os.environ else []
    try:
        here = os.fstat(sys.stderr.fileno())
        return bool(log) and not any(os.path.samestat(here, os.stat(path)) for path in reached)
    except (OSError, ValueError, AttributeError):
        return False


def _append(path: bytes, text: str) -> bool:
    """Write to a log after all that the script has printed, and return whether that worked."""
    # Not by `contextlib.suppress`, which takes three calls for each record.
    try:  # noqa: SIM105
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        pass
    try:
        # Never create it: a missing path belongs to another machine or container.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    except (OSError, ValueError):
        return False
    try:
        return os.write(descriptor, text.encode("utf-8")) > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)


def report_hands(torch: Any) -> bool:
    """Write that Rung's code is installed in this process; False if one that started it has written so."""
    if os.environ.get(HANDS_REPORTED) or not asked_knobs.may_change():
        return False
    os.environ[HANDS_REPORTED] = "1"
    _last_reported["hands"] = True
    emit("hands", torch=str(torch.__version__), python=platform.python_version())
    return True


def has_reported_hands() -> bool:
    """Return whether this very process has written that there are hands."""
    return "hands" in _last_reported


def report_no_hands(why: str, **details: Any) -> None:
    """Write why Rung's code cannot set the knobs in this process, where it was asked to."""
    if not asked_knobs.may_change():
        return
    os.environ.pop(HANDS_REPORTED, None)
    emit("hands none", why=why, **details)


def report_knobs(values: Mapping[str, Any]) -> None:
    """Write the effective knobs if they changed since the last report."""
    if dict(values) != _last_reported.get("knobs"):
        _last_reported["knobs"] = dict(values)
        emit("knobs", **values)


def metric(step: int, **values: Any) -> None:
    """Report any named values, such as val_loss, at a step."""
    emit("metric", step=step, **values)
