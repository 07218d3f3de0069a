"""Writes a file that another program reads at any moment: it finds the old text or the new one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from rung.jobs.model.errors import UsageError

# Of a file in RUNG_HOME, and of one for the collector of node_exporter, which runs as another user.
PRIVATE, READABLE = 0o600, 0o644


def put_whole(file: Path, text: str, mode: int = PRIVATE) -> None:
    """Replace the file at once, or leave it as it is."""
    # The name of the draft ends in no `.prom`, so no collector takes it.
    handle, draft = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".draft", dir=file.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
            os.fchmod(out.fileno(), mode)
        Path(draft).replace(file)
    finally:
        Path(draft).unlink(missing_ok=True)


def export(file: Path, text: str) -> None:
    """Write a file for others; one that cannot be written is said in one line."""
    try:
        put_whole(file, text, READABLE)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}; choose another file with -o") from None
