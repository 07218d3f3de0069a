"""Owns the words of a host's health script: how it is asked for, and what its lines mean. Pure; it runs nothing.

`make provision` puts the script on a host. One without it has no lines, and that is no fault.
"""

from __future__ import annotations

from dataclasses import dataclass

from rung.jobs.model.terminal_text import clean

# Where the role puts it (ansible/roles/health).
SCRIPT = "/usr/local/lib/rung/health"
STATES = ("good", "bad", "unknown")
# What a look from here says as well, in its own words.
SURVEYED = frozenset({"account", "clock", "disk", "driver", "engine", "home"})
MAX_LINES = 100
MAX_TEXT = 300


@dataclass(frozen=True)
class Health:
    """One thing that was looked at on a host; `unknown` where the account may not see it."""

    state: str
    what: str
    said: str
    fix: str = ""


def health_command(*, quick: bool) -> list[str]:
    """Return the command that asks a host; a quick look starts no container."""
    return ["sh", "-c", f'[ ! -x {SCRIPT} ] || exec {SCRIPT} "$1"', "sh", "quick" if quick else "whole"]


def parse_health(text: str) -> tuple[Health, ...]:
    """Return what the script said; lines that are not of its form are left out."""
    found = []
    for line in text.splitlines()[:MAX_LINES]:
        fields = [clean(field).strip()[:MAX_TEXT] for field in line.split("\t")]
        if len(fields) == 4 and fields[0] in STATES and fields[1]:
            found.append(Health(*fields))
    return tuple(found)


def failed_checks(health: tuple[Health, ...]) -> tuple[Health, ...]:
    """Return what is wrong and not seen by any look at a host already."""
    return tuple(one for one in health if one.state == "bad" and one.what not in SURVEYED)
