"""Owns the verdict on checkpoint files, as a command run in the job's own environment.

    python -m rung_inside.verify [--first-healthy] PATH...

Prints one JSON line for each path, in order and at once: {"path", "verdict", "step", "detail"}. Reads only; runs
nothing that a file brings along. Verdicts:

    healthy      loads, everything is finite, the step is known
    no_step      the same, but neither the content nor the name tells the step
    poisoned     a tensor is not finite; the detail names it
    corrupt      bytes have changed since it was written (checksum)
    truncated    the file ends too early
    refused      loading it would run code, or needs a class on the allow-list; the detail tells which
    unreadable   no file, no permission, or no checkpoint at all

Exit code 0 when it could run, 2 for wrong usage, 3 without torch.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import os
import pickle
import re
import stat
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

STEP_KEYS = ("step", "global_step", "iteration", "iter_num", "iter")
STEP_IN_NAME = re.compile(r"(?:step|iteration|iter)[_=-]?(\d+)", re.IGNORECASE)
NUMBER_IN_NAME = re.compile(r"(?:^|[_=.-]|ckpt|checkpoint|model)(\d+)(?=$|[_=.-])", re.IGNORECASE)
EPOCH_IN_NAME = re.compile(r"(?<![a-z])(?:epoch|ep)[_=-]?\d+", re.IGNORECASE)
REFUSED_NAME = re.compile(r"(?:GLOBAL|global|class)\s+`?([A-Za-z_][\w.]*)")
# Plain data that people keep in checkpoints; loading it runs nothing of the file's own.
HARMLESS = re.compile(r"(numpy|argparse\.Namespace|collections|datetime|pathlib|torch)\b")
ZIP_MAGIC = b"PK\x03\x04"
CHUNK = 1 << 22


class Unfit(Exception):
    """Ends the examination of one file with a verdict other than healthy."""

    def __init__(self, verdict: str, detail: str) -> None:
        super().__init__(detail)
        self.verdict, self.detail = verdict, detail


def examine(path: str) -> dict[str, Any]:
    """Return the verdict on one file; never raises for anything the file holds."""
    step: int | None = None
    try:
        _check_file(path)
        content = _load(path)
        step = step_of(content, path)
        _check_finite(content)
        verdict, detail = ("no_step", "neither content nor name tells the step") if step is None else ("healthy", "")
    except Unfit as unfit:
        verdict, detail = unfit.verdict, unfit.detail
    except Exception as error:  # A hostile file may raise anything; it must not hide the verdict on the next one.
        verdict, detail = "unreadable", _first_line(error)
    return {"path": path, "verdict": verdict, "step": step, "detail": detail}


def _check_file(path: str) -> None:
    """Check what needs no torch: a regular file, whole, its checksums right."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise Unfit("unreadable", "is not a regular file")
        with open(path, "rb") as file:
            head = file.read(len(ZIP_MAGIC))
    except OSError as error:
        raise Unfit("unreadable", error.strerror or str(error)) from None
    if not head:
        raise Unfit("truncated", "is empty")
    if ZIP_MAGIC.startswith(head):
        _check_archive(path)


def _check_archive(path: str) -> None:
    """Check the CRCs that torch.save writes and torch.load does not look at."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, EOFError, ValueError, OverflowError):
        raise Unfit("truncated", "the archive has no end: it was not written to the last byte") from None
    with archive:
        if all(entry.CRC == 0 for entry in archive.infolist() if entry.file_size):
            # torch.serialization.set_crc32_options(False) leaves them out.
            return
        try:
            bad = archive.testzip()
        except Exception as error:  # zlib, struct and zipfile each have errors of their own for damaged headers.
            raise Unfit("corrupt", _first_line(error)) from None
    if bad is not None:
        raise Unfit("corrupt", f"checksum of {bad} does not match its bytes")


def _load(path: str) -> Any:
    import torch

    options: dict[str, Any] = {"map_location": "cpu", "weights_only": True}
    with open(path, "rb") as file:
        zipped = file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
    if zipped and "mmap" in inspect.signature(torch.load).parameters:
        # Reads no more than the scan touches: a checkpoint may be larger than the memory.
        options["mmap"] = True
    try:
        return torch.load(path, **options)
    except EOFError as error:
        raise Unfit("truncated", _first_line(error)) from None
    except pickle.UnpicklingError as error:
        raise _refusal(str(error)) from None


def _refusal(message: str) -> Unfit:
    if "truncated" in message:
        return Unfit("truncated", "the pickle ends too early")
    name = REFUSED_NAME.search(message)
    if name is None:
        return Unfit("unreadable", message.splitlines()[0][:300])
    if HARMLESS.match(name[1]):
        return Unfit("refused", f"needs allow-list: {name[1]}")
    return Unfit("refused", f"would run {name[1]} when loaded")


def step_of(content: Any, path: str) -> int | None:
    """Return the step that the content tells, else the one in the file name; an epoch is no step."""
    if isinstance(content, dict):
        for key in STEP_KEYS:
            step = _whole(content.get(key))
            if step is not None:
                return step
    stem = os.path.splitext(os.path.basename(path))[0]
    stem = EPOCH_IN_NAME.sub("", stem)
    found = STEP_IN_NAME.findall(stem) or NUMBER_IN_NAME.findall(stem)
    return int(found[-1]) if found else None


def _whole(value: Any) -> int | None:
    if hasattr(value, "numel") and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    whole = math.isfinite(value) and value >= 0 and value == int(value)
    return int(value) if whole else None


def _check_finite(content: Any) -> None:
    for name, tensor in tensors_in(content):
        if not is_finite(tensor) and not _is_mask(tensor):
            raise Unfit("poisoned", f"{name or 'the tensor'} is not finite")


def tensors_in(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield every tensor of a nested content with its dotted name, whatever the depth."""
    waiting, seen = [("", content)], set()
    while waiting:
        name, value = waiting.pop()
        if hasattr(value, "is_floating_point"):
            yield name, value
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
            waiting += [(f"{name}.{key}" if name else str(key), item) for key, item in reversed(pairs)]


def is_finite(tensor: Any) -> bool:
    """Tell whether all of a tensor is finite: a finite sum proves it at ten times the speed of the exact test."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0:
        return True
    if tensor.is_sparse:
        tensor = tensor.coalesce().values()
    flat = tensor.detach().reshape(-1)
    return all(_chunk_finite(flat[at : at + CHUNK]) for at in range(0, flat.numel(), CHUNK))


def _chunk_finite(chunk: Any) -> bool:
    import torch

    # A sum in FP16 passes 65504 by itself.
    wide = chunk.float() if chunk.is_floating_point() and chunk.element_size() < 4 else chunk
    return bool(torch.isfinite(wide.sum())) or bool(torch.isfinite(wide).all())


def _is_mask(tensor: Any) -> bool:
    """Tell an attention mask kept as a buffer (nothing but 0 and -inf) from a poisoned tensor."""
    return bool(((tensor == 0) | (tensor == float("-inf"))).all()) and bool((tensor == 0).any())


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


def main(arguments: list[str]) -> int:
    """Print the verdicts and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m rung_inside.verify", description="Say which checkpoints are sound."
    )
    parser.add_argument("--first-healthy", action="store_true", help="stop after the first healthy one")
    parser.add_argument("paths", nargs="+", metavar="PATH")
    options = parser.parse_args(arguments)
    try:
        import torch  # noqa: F401 - asked for here so that its absence gets one clear line
    except ImportError as error:
        print(f"cannot verify checkpoints: {sys.executable} has no torch ({error})", file=sys.stderr)
        return 3
    for path in options.paths:
        result = examine(path)
        print(json.dumps(result), flush=True)
        if options.first_healthy and result["verdict"] == "healthy":
            break
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
