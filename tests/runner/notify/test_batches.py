"""Tests what is sent next: one message, a digest, or nothing before the end of the quiet hours."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from rung.jobs.model.event import Occasion
from rung.runner.notify.batches import DIGEST_LINES, MOST_ALONE, REPEAT, next_batch, parse_quiet
from rung.runner.state.outbox_rows import OutboxRow

QUIET = parse_quiet("22:00-07:00", [Occasion.NEEDS_YOU])


def at(clock: str, day: int = 10) -> float:
    return datetime.strptime(f"2026-03-{day} {clock}", "%Y-%m-%d %H:%M").timestamp()


def row(number: int, due: float, occasion: Occasion = Occasion.RECOVERING, **fields: Any) -> OutboxRow:
    return OutboxRow(number, "lab", (occasion.value,), f"job {number}: text\nsecond line", due, **fields)


def test_messages_are_sent_one_at_a_time_the_oldest_first() -> None:
    rows = [row(1, at("12:00")), row(2, at("12:01"))]
    batch = next_batch(rows, 0, at("12:05"), None)
    assert batch is not None and batch.rows == (rows[0],) and batch.text == rows[0].text and not batch.digest


def test_a_message_waits_until_it_is_due() -> None:
    assert next_batch([row(1, at("12:10"), topic="away")], 0, at("12:05"), None) is None
    assert next_batch([row(1, at("12:10"))], 0, at("12:05"), None) is not None, "the clock was set back"
    assert next_batch([], 0, at("12:05"), None) is None


def test_many_messages_become_one_digest_with_the_most_urgent() -> None:
    rows = [row(n, at("12:00") + n) for n in range(1, 1000)]
    rows.append(row(1000, at("11:00"), Occasion.NEEDS_YOU))
    batch = next_batch(rows, 37, at("13:00"), None)
    assert batch is not None and batch.digest and len(batch.rows) == 1000
    lines = batch.text.splitlines()
    assert lines[0] == "Rung: 1000 messages: 1 need you, 999 recovering, and 37 older ones"
    assert lines[1].endswith("11:00 job 1000: text") and lines[2].endswith("job 991: text")
    assert lines[-1] == f"and {1000 - DIGEST_LINES + 37} more; see: rung queue"
    assert len(batch.text) < 2000
    few = next_batch(rows[:MOST_ALONE], 0, at("13:00"), None)
    assert few is not None and not few.digest


def test_in_quiet_hours_only_what_may_pass_is_sent_and_the_rest_comes_together_afterwards() -> None:
    rows = [row(1, at("22:30")), row(2, at("23:00"), Occasion.NEEDS_YOU), row(3, at("06:59", 11))]
    night = next_batch(rows, 0, at("23:30"), QUIET)
    assert night is not None and night.rows == (rows[1],) and not night.digest
    held = [rows[0], rows[2]]
    assert next_batch(held, 0, at("06:59", 11), QUIET) is None
    morning = next_batch([*held, row(4, at("07:01", 11))], 0, at("07:02", 11), QUIET)
    assert morning is not None and morning.digest and len(morning.rows) == 3
    assert morning.text.startswith("Rung: 3 messages: 3 recovering\n")
    alone = next_batch(held[:1], 0, at("07:00", 11), QUIET)
    assert alone is not None and alone.text == rows[0].text


def test_quiet_hours_may_lie_within_one_day() -> None:
    nap = parse_quiet("12:30 - 13:15", [])
    assert [nap.includes(at(clock)) for clock in ("12:29", "12:30", "13:14", "13:15")] == [False, True, True, False]
    assert [QUIET.includes(at(clock)) for clock in ("21:59", "22:00", "03:00", "06:59", "07:00")] == [
        False,
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("text", ["22-07", "24:00-07:00", "22:00-22:00", "22:60-07:00", "", "at night"])
def test_other_hours_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write it as .22:00-07:00."):
        parse_quiet(text, [])


def test_a_message_that_may_have_arrived_says_so() -> None:
    batch = next_batch([row(1, at("12:00"), begun_at=at("12:01"))], 0, at("12:05"), None)
    assert batch is not None and batch.text.endswith(f"\n{REPEAT}")
