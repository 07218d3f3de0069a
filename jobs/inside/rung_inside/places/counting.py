"""Says whether what happens now counts: a replay of a step is no part of the run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_paused = [False]


def is_on() -> bool:
    return not _paused[0]


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Count nothing."""
    before, _paused[0] = _paused[0], True
    try:
        yield
    finally:
        _paused[0] = before
