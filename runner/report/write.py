"""Writes a report to the file that a person named: whole, or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rung.jobs.model.errors import StoreError


def write_page(target: Path, page: str) -> None:
    """Write a page over what is there. Whoever asked for it decides who else may read it, with `chmod`."""
    if target.is_dir():
        raise StoreError(f"{target}: is a folder; name a file for the report, such as {target / 'report.html'}")
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_text(page, encoding="utf-8", errors="replace")
        draft.rename(target)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise StoreError(f"{target}: the report cannot be written there: {error.strerror}") from None
