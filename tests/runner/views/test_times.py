"""Tests how times and durations are written, and what `--since` means."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rung.jobs.model.errors import UsageError
from rung.runner.views.times import age_text, clock_time, duration_text, iso_utc, local_time, parse_since

NOW = 1_774_950_000.0  # 2026-03-31 09:40:00 UTC


@pytest.fixture(autouse=True)
def _in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nine hours east of UTC, so that a mixed-up zone shows."""
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_an_age_has_one_unit_and_is_rounded_down() -> None:
    ages = (-1, 5, 59.9, 90, 7199, 7200, 200_000, 40 * 86_400)
    assert [age_text(age) for age in ages] == ["0s", "5s", "59s", "1m", "1h", "2h", "2d", "40d"]


def test_a_duration_has_its_two_largest_units() -> None:
    spans = (-3, 0.4, 45, 59.6, 252, 7500, 3 * 86_400 + 4 * 3600 + 59)
    assert [duration_text(span) for span in spans] == ["0s", "0s", "45s", "1m00s", "4m12s", "2h05m", "3d04h"]


def test_a_person_reads_local_time_and_json_has_utc() -> None:
    assert local_time(NOW) == "2026-03-31 18:40:00"
    assert iso_utc(NOW) == "2026-03-31T09:40:00Z"
    assert iso_utc(None) is None


@pytest.mark.parametrize("at", [1e30, -1e30, float("nan"), float("inf")])
def test_a_time_that_no_calendar_has_is_no_error(at: float) -> None:
    assert local_time(at) == "at a time that no calendar has"
    assert iso_utc(at) is None


@pytest.mark.parametrize(
    ("text", "ago"),
    [("30s", 30), ("10m", 600), ("2h", 7200), ("1.5h", 5400), ("3d", 259_200), ("1w", 604_800), (" 2 h ", 7200)],
)
def test_since_may_be_a_span_before_now(text: str, ago: float) -> None:
    assert parse_since(text, NOW) == NOW - ago


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-03-31", "2026-03-31 00:00:00"),
        ("2026-03-31 08:30", "2026-03-31 08:30:00"),
        ("2026-03-31T08:30:00Z", "2026-03-31 17:30:00"),
    ],
)
def test_since_may_be_a_date_or_a_time_here(text: str, at: str) -> None:
    assert local_time(parse_since(text, NOW)) == at


@pytest.mark.parametrize("text", ["", "2", "h", "2y", "-2h", "yesterday", "2026-02-30", "0001-01-01T00:00", "nan"])
def test_any_other_since_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="such as 30m, 2h or 3d, or a date such as 2026-03-31"):
        parse_since(text, NOW)


def test_a_time_has_its_date_only_on_another_day() -> None:
    assert clock_time(NOW + 3600, NOW) == "19:40"
    assert clock_time(NOW + 86_400, NOW) == "2026-04-01 18:40"
    assert clock_time(1e300, NOW) == "a time that no calendar has"
