"""What a person gave to `rung init`, and the draft of a job file that is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from rung.recovery.doctor.job_draft.path_parts import FindKey
from rung.recovery.doctor.job_draft.settings import Setting


@dataclass(frozen=True)
class Asked:
    """The script as the command names it, its arguments, and where the command runs."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ("python",)
    # The folder where the command runs: its path, and as the job file names it.
    folder: str = "/"
    workdir: str = "."
    find_key: FindKey = lambda key: None

    def at(self, line: int) -> str:
        """Return a place in the script."""
        return f"{PurePosixPath(self.script).name}:{line}"


@dataclass
class Draft:
    """The fields of a job file in their order, each with the sentences above it, and what is left to the person."""

    fields: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    # One short sentence for the terminal on each thing that was found.
    summary: list[str] = field(default_factory=list)

    def add(self, name: str, value: Any, *notes: str) -> None:
        """Add a field, with the sentences above it; a value of None: only the sentences."""
        self.fields[name] = value
        self.notes[name] = [*self.notes.get(name, []), *notes]

    def set_option(self, setting: Setting, value: str) -> None:
        """Set an option in the commands of the draft."""
        for name in ("run", "run_on_resume"):
            if name in self.fields:
                self.fields[name] = setting.set_in(self.fields[name], value)
