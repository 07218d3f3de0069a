"""Chooses what is sent next to a target: one message, a digest of many, or nothing yet. Has no disk and no clock."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, time

from rung.jobs.model.event import Occasion
from rung.runner.state.outbox_rows import OutboxRow

# When more than this many wait, they come as one message.
MOST_ALONE = 5
# Some services take 2,000 characters.
DIGEST_LINES, LINE_LENGTH = 10, 130
HOURS = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])\s*-\s*([01]?[0-9]|2[0-3]):([0-5][0-9])")
REPEAT = "(perhaps a repeat: nobody recorded whether the last try arrived)"
# In the order in which a digest counts and lists them.
COUNTED = {
    Occasion.NEEDS_YOU: "need you",
    Occasion.FAILED: "failed",
    Occasion.HOST_LOST: "host lost",
    Occasion.SUCCEEDED: "succeeded",
    Occasion.RECOVERING: "recovering",
    Occasion.HOST_BACK: "host back",
}


@dataclass(frozen=True)
class QuietHours:
    """The hours of the day, in the time zone of the controller, in which only some occasions are told at once."""

    begin: time
    end: time
    passes: frozenset[Occasion] = frozenset()

    def includes(self, at: float) -> bool:
        moment = datetime.fromtimestamp(at).time()
        if self.begin < self.end:
            return self.begin <= moment < self.end
        return moment >= self.begin or moment < self.end

    def holds(self, row: OutboxRow) -> bool:
        """Tell whether a message must not come within the quiet hours."""
        return not self.passes & set(row.occasions)


@dataclass(frozen=True)
class Batch:
    """What one send delivers."""

    rows: tuple[OutboxRow, ...]
    text: str
    digest: bool = False


def parse_quiet(text: str, passes: Collection[Occasion]) -> QuietHours:
    match = HOURS.fullmatch(text.strip())
    hours = (time(int(match[1]), int(match[2])), time(int(match[3]), int(match[4]))) if match else None
    if hours is None or hours[0] == hours[1]:
        raise ValueError('quiet: write it as "22:00-07:00"')
    return QuietHours(*hours, frozenset(passes))


def next_batch(rows: Sequence[OutboxRow], left_out: int, now: float, quiet: QuietHours | None) -> Batch | None:
    """Return what to send now; None: nothing waits, or it waits for its time or for the end of the quiet hours."""
    ready = [row for row in rows if row.is_due(now)]
    if quiet is not None and quiet.includes(now):
        ready = [row for row in ready if not quiet.holds(row)]
        held_back = False
    else:
        held_back = quiet is not None and any(quiet.includes(row.due_at) and quiet.holds(row) for row in ready)
    if not ready:
        return None
    if left_out or len(ready) > MOST_ALONE or (held_back and len(ready) > 1):
        return Batch(tuple(ready), _repeated(_digest(ready, left_out), ready), digest=True)
    return Batch((ready[0],), _repeated(ready[0].text, ready[:1]))


def _repeated(text: str, rows: Sequence[OutboxRow]) -> str:
    return f"{text}\n{REPEAT}" if any(row.begun_at is not None for row in rows) else text


def _digest(rows: Sequence[OutboxRow], left_out: int) -> str:
    """Return one message for many: how many of which kind, then the most urgent and newest of them."""
    counts = Counter(_rank(row) for row in rows)
    parts = ", ".join(f"{count} {[*COUNTED.values()][rank]}" for rank, count in sorted(counts.items()))
    older = f", and {left_out} older ones" if left_out else ""
    first = f"Rung: {len(rows)} messages: {parts}{older}"
    listed = sorted(rows, key=lambda row: (_rank(row), -row.due_at, -row.number))[:DIGEST_LINES]
    lines = [_line(row) for row in sorted(listed, key=lambda row: (row.due_at, row.number))]
    more = len(rows) - len(lines) + left_out
    return "\n".join([first, *lines, *([f"and {more} more; see: rung queue"] if more else [])])


def _rank(row: OutboxRow) -> int:
    return min((rank for rank, occasion in enumerate(COUNTED) if occasion in row.occasions), default=0)


def _line(row: OutboxRow) -> str:
    first = row.text.partition("\n")[0]
    short = first if len(first) <= LINE_LENGTH else f"{first[: LINE_LENGTH - 1]}…"
    return f"{datetime.fromtimestamp(row.due_at):%d %b %H:%M} {short}"
