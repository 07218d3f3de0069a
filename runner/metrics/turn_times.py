"""Keeps how long the turns of the controller take, and which hosts answer it, in a small file for the metrics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rung.runner.metrics.whole_file import put_whole

# The file is written at most so often.
WRITE_SECONDS = 5.0


@dataclass(frozen=True)
class TurnFigures:
    """Turns and their seconds over all controllers; the last and the longest turn of the present one, or last one."""

    turns: int = 0
    seconds: float = 0.0
    last: float = 0.0
    longest: float = 0.0
    # When the last turn ended, by the time of day.
    at: float = 0.0
    # Whether each host answered when the controller last asked it, a short while ago.
    hosts: Mapping[str, bool] = field(default_factory=dict)


class TurnTimes:
    """Counts the turns of one controller."""

    def __init__(
        self,
        file: Path,
        hosts: Callable[[], Mapping[str, bool]],
        steady: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._file, self._hosts, self._steady, self._wall = file, hosts, steady, wall
        # The totals go on, so that they never fall.
        self._figures = replace(read_turns(file) or TurnFigures(), last=0.0, longest=0.0)
        self._written: float | None = None

    def turn(self, act: Callable[[], int]) -> int:
        """Let the controller act, and count how long that took."""
        began = self._steady()
        result = act()
        ended = self._steady()
        self._add(ended - began)
        if self._written is None or ended - self._written >= WRITE_SECONDS:
            self._written = ended
            self.write()
        return result

    def _add(self, seconds: float) -> None:
        before = self._figures
        self._figures = replace(
            before,
            turns=before.turns + 1,
            seconds=before.seconds + seconds,
            last=seconds,
            longest=max(before.longest, seconds),
        )

    def write(self) -> None:
        data = asdict(replace(self._figures, at=self._wall(), hosts=dict(self._hosts())))
        # No reason to stop a controller: without the file the metrics have no turns.
        with suppress(OSError):
            put_whole(self._file, json.dumps(data))


def read_turns(file: Path) -> TurnFigures | None:
    """Return the figures; None if no controller has written any."""
    try:
        data = json.loads(file.read_bytes())
        numbers = {name: float(data[name]) for name in ("seconds", "last", "longest", "at")}
        hosts = {str(host): bool(answers) for host, answers in data["hosts"].items()}
        return TurnFigures(turns=int(data["turns"]), hosts=hosts, **numbers)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return None
