"""Reads the time limit of a batch job, as Slurm writes it (`1-12:00`) or as Rung does (`36h`), into seconds."""

from __future__ import annotations

import math
import re

# A limit below a minute means a minute for Slurm; beyond a year nobody checks it.
SHORTEST, LONGEST = 60, 365 * 86_400
DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([smhd])")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
# minutes:seconds, hours:minutes:seconds; after days and a dash: hours, hours:minutes, hours:minutes:seconds.
CLOCK = re.compile(r"[0-9]{1,6}(?::[0-9]{1,2}){1,2}")
DAYS = re.compile(r"([0-9]{1,4})-([0-9]{1,2}(?::[0-9]{1,2}){0,2})")


def parse_limit(value: object) -> int:
    """Return the seconds of a limit, or raise a ValueError with what is wrong."""
    text = value.strip() if isinstance(value, str) else value
    if not isinstance(text, str) or text.isdecimal():
        raise ValueError(
            "give a time with its unit, such as 12h, 90m, 12:00:00 or 1-12:00 (days-hours:minutes): a bare number is "
            "minutes for Slurm and seconds for Rung"
        )
    seconds = _seconds(text)
    if seconds is None:
        raise ValueError("give a time such as 12h, 90m, 12:00:00 or 1-12:00 (days-hours:minutes)")
    return check_limit(seconds)


def check_limit(seconds: int) -> int:
    if not SHORTEST <= seconds <= LONGEST:
        raise ValueError("give a time from one minute to 365 days")
    return seconds


def minutes(seconds: int) -> int:
    """Return a limit in minutes, the unit of a bare number for Slurm; a part of a minute counts as one."""
    return math.ceil(seconds / 60)


def text_of(seconds: int) -> str:
    """Return a limit as Slurm writes it: 12:00:00, or 1-12:00:00 with days."""
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def parse_shown(text: str) -> int | None:
    """Return the seconds of a limit that Slurm shows; None: it has none, or this is no time."""
    return _seconds(text)


def _seconds(text: str) -> int | None:
    if match := DURATION.fullmatch(text):
        return math.ceil(float(match[1]) * UNITS[match[2]])
    if match := DAYS.fullmatch(text):
        hours, minute, second = ([int(part) for part in match[2].split(":")] + [0, 0])[:3]
        return int(match[1]) * 86_400 + hours * 3600 + minute * 60 + second
    if CLOCK.fullmatch(text):
        hours, minute, second = ([0] + [int(part) for part in text.split(":")])[-3:]
        return hours * 3600 + minute * 60 + second
    return None
