"""Sets the clock on the wall for one process, by the seconds in the file that TEST_CLOCK names."""

import os
import time
from pathlib import Path

_real = time.time


def _set() -> float:
    try:
        return _real() + float(Path(os.environ["TEST_CLOCK"]).read_text(encoding="ascii") or 0)
    except (KeyError, OSError, ValueError):
        return _real()


time.time = _set
