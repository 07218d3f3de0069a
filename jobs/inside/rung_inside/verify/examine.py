"""Gives a verdict on checkpoints of every kind, as a command in the environment of the job.

    python -m rung_inside.verify [--first-healthy] [--sampled] PATH...

Prints one JSON line for each path, in order and at once: {"path", "verdict", "step", "detail", "kind", "look"}. Reads
only; runs no code of a checkpoint. Each path is checked in a process of its own, under limits. `--sampled` is the cheap
check of a listing: no checksums, and of each large tensor only samples. Verdicts:

    healthy           loads, everything is finite, the step is known
    no_step           the same, but neither the content nor the name has the step
    needs_allow_list  whole and finite, but torch.load takes it only with weights_only=False or an allow-list
    poisoned          a tensor is not finite; the detail names it
    corrupt           bytes have changed since it was written (checksum)
    truncated         a file ends too early
    unfinished        the last file of a folder is missing
    refused           loading it would run code, or checking it would take too much; the detail says what
    unreadable        no file, no permission, or no checkpoint at all
    unverified        of a kind that cannot be checked here

Exit code 0 when it could run, 2 for wrong usage, 3 without torch.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import stat
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from rung_inside.verify.finiteness import check_finite, tensors_in
from rung_inside.verify.folder import read_folder
from rung_inside.verify.isolation import MOST_THREADS, examined_apart, size_of
from rung_inside.verify.safetensors_file import read_safetensors
from rung_inside.verify.step_number import step_of
from rung_inside.verify.stored.bits import NeedsTorch
from rung_inside.verify.stored.verdict import (
    HEALTHY,
    NEEDS_ALLOW_LIST,
    NO_STEP,
    REFUSED,
    UNREADABLE,
    Content,
    Unfit,
    first_line,
)
from rung_inside.verify.torch_file import read_torch

__all__ = ["examine", "main", "step_of", "tensors_in"]

# Until then a file may run code even with weights_only=True (CVE-2025-32434).
SAFE_TORCH = (2, 6)
# A checkpoint with more bytes is looked at faster with torch, which has several threads.
LARGE = 1 << 29
# The check of one checkpoint needs torch, and it is not loaded. Nobody outside is told this.
UNDECIDED = "undecided"


def examine(path: str, full: bool = True) -> dict[str, Any]:
    """Return the verdict on one checkpoint; never raises, whatever it holds."""
    step: int | None = None
    kind = ""
    try:
        content = _read(path, full)
        kind, step = content.kind, step_of(content.state, path)
        check_finite(content.tensors, full)
        verdict, detail = _verdict(content, step)
    except Unfit as unfit:
        verdict, detail = unfit.verdict, unfit.detail
    except NeedsTorch:
        verdict, detail = UNDECIDED, ""
    except MemoryError:
        verdict, detail = REFUSED, "checking it takes more memory than any checkpoint needs"
    except OSError as error:
        verdict, detail = UNREADABLE, error.strerror or str(error)
    except Exception as error:  # A hostile file may raise anything; it must not hide the verdict on the next one.
        verdict, detail = UNREADABLE, first_line(error)
    look = "full" if full else "sampled"
    if verdict in (HEALTHY, NEEDS_ALLOW_LIST, NO_STEP):
        detail = "; ".join(filter(None, (detail, _warning(_torch_version()))))
    return {"path": path, "verdict": verdict, "step": step, "detail": detail, "kind": kind, "look": look}


def _torch_version() -> str:
    torch = sys.modules.get("torch")
    if torch is not None:
        return str(torch.__version__)
    try:
        return version("torch")
    except PackageNotFoundError:
        raise NeedsTorch from None


def _read(path: str, full: bool) -> Content:
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        return read_folder(path, full)
    if not stat.S_ISREG(mode):
        raise Unfit(UNREADABLE, "is neither a file nor a folder")
    return read_safetensors(path, full) if path.endswith(".safetensors") else read_torch(path, full)


def _verdict(content: Content, step: int | None) -> tuple[str, str]:
    """Return the verdict on a checkpoint that is whole and finite."""
    if content.foreign:
        names = ", ".join(content.foreign[:3]) + (
            f" and {len(content.foreign) - 3} more" if content.foreign[3:] else ""
        )
        return NEEDS_ALLOW_LIST, f"torch.load takes it only with weights_only=False: it holds {names}"
    if step is None:
        return NO_STEP, "neither content nor name tells the step"
    return HEALTHY, content.note


def _warning(version: str) -> str:
    """Return a warning about a torch that is unsafe to load untrusted files with."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) >= SAFE_TORCH:
        return ""
    return f"torch {numbers[0]} is older than 2.6: load no file from others with it, not even with weights_only=True"


def main(arguments: list[str]) -> int:
    """Print the verdicts and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m rung_inside.verify", description="Say which checkpoints are sound."
    )
    parser.add_argument("--first-healthy", action="store_true", help="stop after the first healthy one")
    parser.add_argument("--sampled", action="store_true", help="a cheap look: no checksums, samples of large tensors")
    parser.add_argument("paths", nargs="+", metavar="PATH")
    options = parser.parse_args(arguments)
    try:
        for path in options.paths:
            result = _examined(path, full=not options.sampled)
            print(json.dumps(result), flush=True)
            if options.first_healthy and result["verdict"] in (HEALTHY, NEEDS_ALLOW_LIST, NO_STEP):
                break
    except ImportError as error:
        print(f"cannot verify checkpoints: {sys.executable} has no torch ({error})", file=sys.stderr)
        return 3
    return 0


def _examined(path: str, full: bool) -> dict[str, Any]:
    """Return the verdict on a path. To load torch takes longer than to look at some hundred million numbers."""
    if find_spec("torch") is None or size_of(path) > LARGE:
        _load_torch(full)
    result = examined_apart(path, full, examine)
    if result["verdict"] == UNDECIDED:
        _load_torch(full)
        result = examined_apart(path, full, examine)
    return result


def _load_torch(full: bool) -> None:
    """Load torch here, so that the processes of all later checks have it."""
    import torch

    # A listing may run beside a training.
    torch.set_num_threads(min(torch.get_num_threads(), MOST_THREADS) if full else 1)
