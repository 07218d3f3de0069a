"""What the harness can do to jobs that run as processes on this machine. Another engine gets a class of its own."""

from __future__ import annotations

import os
import random
import signal
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import pace
from tests.chaos.ledger import Run, read_ledger, runs_of
from tests.chaos.random_jobs import MARK, TRAINING

PATIENCE = 60.0
MOST_AT_ONCE = 4


@dataclass(frozen=True)
class Live:
    """An attempt whose process runs."""

    job_id: str
    attempt: int
    pid: int
    wrapper: int
    # Empty: this machine.
    host: str = ""


class ProcessJobs:
    """Finds, kills and freezes the processes of jobs, and damages their files."""

    # How many jobs without a GPU may run at once, and how many jobs are under way while faults are injected.
    most_at_once = MOST_AT_ONCE
    jobs_at_once = 8

    def __init__(self, ledgers: Path, home: Path, mark: str) -> None:
        self.ledgers, self._home, self._mark = ledgers, home, mark

    # What differs for the lab

    @property
    def env(self) -> dict[str, str]:
        """Return more variables for the controllers and commands."""
        return {"RUNG_MAX_PARALLEL": str(MOST_AT_ONCE)}

    def ledger(self, name: str) -> Path:
        return self.ledgers / f"{name}.ledger"

    def job_fields(self, name: str, plan: Path, chance: random.Random) -> dict[str, Any]:
        """Return what a job file needs to run here; the options of the training follow the words of `run`."""
        return {"run": [sys.executable, str(TRAINING), "--plan", str(plan), "--ledger", str(self.ledger(name))]}

    def as_logged(self, line: bytes) -> bytes:
        """Return a printed line as the log has it."""
        return line

    def is_not_of_the_job(self, line: bytes) -> bool:
        """Tell whether a line of a log is of neither the job nor Rung."""
        return False

    def recorded_code(self, job_id: str, attempt: int) -> int | None:
        """Return the exit code that the wrapper of an attempt has recorded, where that is asked."""
        return None

    def leftovers(self) -> list[str]:
        """Return what is left besides processes, each as a line for a person."""
        return []

    def all_is_over(self) -> bool:
        """Tell whether nothing is left that a controller would still remove."""
        return True

    def places_of_secrets(self) -> list[Path]:
        """Return folders besides RUNG_HOME in which no secret may be."""
        return []

    def close(self, keep_in: Path | None) -> None:
        """Remove what is outside of the lab's folder, or keep it there."""

    # Finding and ending runs

    def live(self) -> list[Live]:
        """Return the attempts that run now, by the ledgers and the processes themselves."""
        starts = (run.start for run in self.unended())
        found = (Live(each["job"], each["attempt"], each["pid"], each["owner"]) for each in starts)
        return [live for live in found if self.is_ours(live.pid)]

    def unended(self) -> list[Run]:
        """Return the last process of each job, unless it has come to its end."""
        found = []
        for path in sorted(self.ledgers.glob("*.ledger")):
            # A job that writes just now may have written half a line.
            with suppress(ValueError):
                found += [run for run in runs_of(read_ledger(path))[-1:] if run.code is None]
        return found

    def is_ours(self, pid: int) -> bool:
        """Tell whether a process that has not ended is one of this run: a pid alone proves nothing."""
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        return f"{MARK}={self._mark}".encode() in environment and _state(pid) not in ("", "Z", "X")

    def all_processes(self) -> list[int]:
        """Return every process that has the mark of this run in its environment."""
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        return [pid for pid in pids if self.is_ours(pid)]

    def kill_job(self, live: Live) -> bool:
        return self._kill(live.pid)

    def kill_wrapper(self, live: Live) -> bool:
        return self._kill(live.wrapper)

    def stop_job(self, live: Live) -> bool:
        """Let the process of a job stand still."""
        return self._kill(live.pid, signal.SIGSTOP)

    def _kill(self, pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
        if not self.is_ours(pid):
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        return True

    def append_to_log(self, live: Live, line: bytes) -> bool:
        """Add a line to the log from outside, as another process with the file open would."""
        try:
            with self._log(live).open("ab", buffering=0) as file:
                return file.write(line) == len(line)
        except OSError:
            return False

    def _log(self, live: Live) -> Path:
        return self._home / "jobs" / live.job_id / "attempts" / str(live.attempt) / "log"

    def _checkpoints(self, live: Live) -> Path:
        return self._home / "jobs" / live.job_id / "checkpoints"

    def has_checkpoint(self, live: Live) -> bool:
        return any(self._checkpoints(live).glob("step_*.safetensors"))

    def damage(self, live: Live, how: str, chance: random.Random) -> tuple[str, bool] | None:
        """Damage the newest checkpoint of a run that stands still meanwhile, so that it cannot end before.

        Return its name, and whether the run was still there afterwards: then Rung cannot have looked at it before, and
        must see the damage. None: there was nothing to damage.
        """
        if not self.is_ours(live.pid):
            return None
        with suppress(ProcessLookupError):
            os.kill(live.pid, signal.SIGSTOP)
        try:
            pace.until(lambda: _state(live.pid) in ("T", "t", "Z", "X", ""), PATIENCE, "the job stands still")
            files = sorted(
                self._checkpoints(live).glob("step_*.safetensors"), key=lambda path: int(path.stem.partition("_")[2])
            )
            if not files:
                return None
            with suppress(OSError):
                spoil(files[-1], how, chance)
            return files[-1].name, _state(live.pid) in ("T", "t") and self.is_ours(live.wrapper)
        finally:
            with suppress(ProcessLookupError):
                os.kill(live.pid, signal.SIGCONT)


def spoil(path: Path, how: str, chance: random.Random) -> None:
    """Damage a checkpoint so that it can be seen."""
    size = path.stat().st_size
    if how == "truncated":
        os.truncate(path, chance.randrange(size))
        return
    with path.open("r+b") as file:
        if how == "flipped":
            # Where the header begins. A flipped bit of a finite number is another finite number, which nobody can see.
            file.seek(8)
            (byte,) = file.read(1)
            file.seek(8)
            file.write(bytes([byte ^ (1 << chance.randrange(8))]))
        else:
            file.seek(size - 4 * chance.randint(1, 60))
            file.write(struct.pack("<f", float("nan")))


def _state(pid: int) -> str:
    """Return the state of a process as ps names it; empty: it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]
