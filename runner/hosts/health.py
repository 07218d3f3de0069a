"""Builds the command for a host's health script and parses its output. Pure; it runs nothing.

`make provision` installs the script. A host without it prints no lines, which is not an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from rung.jobs.model.terminal_text import clean

# Where the role puts it (ansible/roles/health).
SCRIPT = "/usr/local/lib/rung/health"
STATES = ("good", "bad", "unknown")
# What the survey of a host reports itself.
SURVEYED = frozenset({"account", "clock", "disk", "driver", "engine", "home"})
MAX_LINES = 100
MAX_TEXT = 300


@dataclass(frozen=True)
class Health:
    """One check on a host; `unknown` where our account has no access."""

    state: str
    what: str
    message: str
    fix: str = ""


def health_command(*, quick: bool) -> list[str]:
    """Return the command for the health script; a quick run starts no container."""
    return ["sh", "-c", f'[ ! -x {SCRIPT} ] || exec {SCRIPT} "$1"', "sh", "quick" if quick else "whole"]


def parse_health(text: str) -> tuple[Health, ...]:
    """Parse the output of the script; other lines are ignored."""
    found = []
    for line in text.splitlines()[:MAX_LINES]:
        fields = [clean(field).strip()[:MAX_TEXT] for field in line.split("\t")]
        if len(fields) == 4 and fields[0] in STATES and fields[1]:
            found.append(Health(*fields))
    return tuple(found)


def failed_checks(health: tuple[Health, ...]) -> tuple[Health, ...]:
    """Return the failed checks that the survey does not report itself."""
    return tuple(one for one in health if one.state == "bad" and one.what not in SURVEYED)
