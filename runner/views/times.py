"""Writes times and durations for a person and for JSON, and reads `--since`."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from rung.jobs.model.errors import UsageError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([smhdw])")
# A host that lies may report a time that no calendar has.
NO_CALENDAR = (ValueError, OverflowError, OSError)


def age_text(seconds: float) -> str:
    """Return an age in its largest unit, rounded down: 45s, 12m, 5h, 3d."""
    unit = next((unit for unit in "dhm" if seconds >= UNITS[unit]), "s")
    return f"{max(seconds, 0) // UNITS[unit]:.0f}{unit}"


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units: 45s, 4m12s, 2h05m, 3d04h."""
    whole = max(0, round(seconds))
    for large, small in (("d", "h"), ("h", "m"), ("m", "s")):
        if whole >= UNITS[large]:
            return f"{whole // UNITS[large]}{large}{whole % UNITS[large] // UNITS[small]:02d}{small}"
    return f"{whole}s"


def local_time(at: float) -> str:
    """Return a time as the clock on the wall shows it here."""
    try:
        return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")
    except NO_CALENDAR:
        return "at a time that no calendar has"


def clock_time(at: float, now: float) -> str:
    """Return a time of the next or last hours: 14:20, with its date on another day than today."""
    try:
        then = datetime.fromtimestamp(at)
        return then.strftime("%H:%M" if then.date() == datetime.fromtimestamp(now).date() else "%Y-%m-%d %H:%M")
    except NO_CALENDAR:
        return "a time that no calendar has"


def with_since(text: str, at: float | None) -> str:
    """Return a sentence with the time since when it is true, if that is known."""
    return text if at is None else f"{text} since {local_time(at)}"


def iso_utc(at: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC; None if there is none."""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}" if at is not None else None
    except NO_CALENDAR:
        return None


def parse_span(option: str, text: str) -> float:
    """Return the seconds of a span such as 12h or 30d."""
    span = SPAN.fullmatch(text.strip())
    if span is None:
        raise UsageError(f"{option} {text}: write how long, such as 12h, 30d or 8w")
    return float(span[1]) * UNITS[span[2]]


def parse_since(text: str, now: float) -> float:
    """Return the time that `--since` means: so long before now, or a date or time here."""
    span = SPAN.fullmatch(text.strip())
    if span:
        return now - float(span[1]) * UNITS[span[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except NO_CALENDAR:
        raise UsageError(
            f"--since {text}: write how long ago, such as 30m, 2h or 3d, or a date such as 2026-03-31"
        ) from None
