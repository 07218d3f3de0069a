"""One training of the gauntlet: what is wrong with it, how Rung reaches it, and its job file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CASES = Path(__file__).parent / "cases"
# The single scripts, each with its own fault.
SCRIPTS = "scripts"
CONFIG = "config.json"
WORK = "work"
# A burst or a late restart of the lr comes at 70 % of the run: of 2,000 steps, 100 healthy ones are left before it.
LATE_FAULTS, START = ("_burst_", "_late"), 0.65


@dataclass(frozen=True)
class Case:
    """A script that does not know Rung. `--fixed` runs it without its fault, in FP32."""

    name: str
    wrong: str
    framework: str = "torch"
    family: str = SCRIPTS
    steps: int = 400
    # Whether the script itself computes in 16 bit.
    half: bool = True
    # Whether the fault is a learning rate.
    lr: bool = False
    # Nothing is wrong: the run must be left alone.
    healthy: bool = False
    # Empty: a rung can cure the fault. Otherwise none can, and the final reason must contain one of these texts.
    diagnosis: tuple[str, ...] = ()
    pattern: str = "step_*.pt"
    # The script, if it has another name than the case, and its flags under every regimen.
    runs: str = ""
    flags: str = ""
    # What Rung adds to the command, the knobs of the job file, and the script's own config file.
    arguments: str = ""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    memory: str | None = None
    # Of the newest list, which was drawn after Rung's rules had been made with the others.
    fresh: bool = False

    @property
    def curable(self) -> bool:
        return not self.diagnosis and not self.healthy

    @property
    def attached(self) -> bool:
        """Return whether the script imports rung_inside itself."""
        return self.knobs.get("mode") == "inside"

    @property
    def arc(self) -> bool:
        """Return whether the script has the flag --arc."""
        return self.runs.startswith("family") and not self.attached

    @property
    def side(self) -> str:
        """Return `tune` if Rung's rules may be changed for this case, and `blind` if not.

        A hash of its name makes a third of the newest list `tune`. The other lists are `tune` as a whole: their blind
        cases have been read by now.
        """
        third = hashlib.sha256(self.name.encode()).digest()[0] % 3 == 0
        return "tune" if third or not self.fresh else "blind"

    @property
    def script(self) -> Path:
        return CASES / f"{self.runs or self.name}.py"

    def job(self, times: int, recovery: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the job file: the script's command, how knobs reach it, and the pattern of its checkpoints."""
        own = "".join(f" {each}" for each in (self.flags, self.arguments) if each)
        command = f"python {self.script} --steps {self.steps * times} --out {{checkpoint_dir}}{own}"
        return {
            "name": self.name,
            "run": f"{command} --resume {{checkpoint}}",
            **({"workdir": WORK} if self.config else {}),
            "resources": {"memory": self.memory} if self.memory else {},
            "envs": {"OMP_NUM_THREADS": "1"},
            "knobs": {"mode": "zero-edit", **self.knobs},
            "checkpoint": {"pattern": self.pattern},
            "recovery": dict(recovery or {}),
        }


def start_of(case: Case) -> int:
    """Return the step of the last checkpoint that is well before a late fault; 0: from scratch."""
    return int(case.steps * START) if any(each in case.name for each in LATE_FAULTS) else 0
