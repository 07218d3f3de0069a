"""Finds which shared libraries a program of this machine loads, and by which names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.fleet.patience import run

NAMED = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)


def needed_by(programs: Iterable[Path]) -> set[Path]:
    """Return the libraries that programs and libraries are linked with, as the loader finds them here."""
    said = run("ldd", *programs, check=False)
    return {Path(path) for path in NAMED.findall(said)}


def loader_folder() -> Path:
    """Return the folder of the C library, which the loader searches by default."""
    found = next(path for path in needed_by([Path("/bin/sh")]) if path.name.startswith("libc.so"))
    return found.resolve().parent


def mapped(text: str) -> set[Path]:
    """Return the libraries in a process's list of mapped files."""
    words = [line.split(maxsplit=5) for line in text.splitlines()]
    paths = {Path(word[5]) for word in words if len(word) == 6 and word[5].startswith("/")}
    return {path for path in paths if ".so" in path.name and path.is_file()}


def names_of(path: Path) -> Iterator[Path]:
    """Yield every name by which a loader may look for a library: its own, and the links to it beside it."""
    real = path.resolve()
    yield real
    yield path.parent.resolve() / path.name
    for link in real.parent.glob(f"{real.name.partition('.so')[0]}.so*"):
        if link.is_symlink() and link.resolve() == real:
            yield link
