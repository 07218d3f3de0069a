"""Runs a short command as a batch job of its own, such as the check of a checkpoint: never on the login node."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rung.jobs.model.engine import EndedBy
from rung.jobs.model.errors import EngineError, HostError, HostUnreachable, RunCutShort
from rung.jobs.model.terminal_text import clean
from rung.runner.engines.on_host.host_account import HostAccount
from rung.runner.engines.on_host.owner import is_gone, this_process
from rung.runner.engines.slurm.job_table import QUEUE_FORMAT, BatchJob, parse_queue
from rung.runner.engines.slurm.queue import COMMAND_SECONDS
from rung.runner.engines.slurm.short_end import ended_for_memory, error_for
from rung.runner.seams.remote import OUTPUT_BYTES

# What the cluster may take to find a place for it, beyond its own time.
QUEUE_SECONDS = 300.0
# The exit codes of a command that was ended by TERM or KILL, such as one that took too much memory.
KILLED = (128 + 15, 128 + 9)
# While its nodes clean up, the queue shows that in place of how a job ended.
STATE_WAITS = (0.5, 1.0, 2.0, 5.0, 10.0)
# The code, or `none` and what sbatch says; then the end of the log, in which a node says why it ended the job.
SUBMIT_SCRIPT = """
set -eu
cd "$1"
seconds=$2
shift 2
timeout "$seconds" sbatch --wait "$@" >/dev/null 2>said || :
if [ -f code ]; then echo "code $(head -c 20 code)"; else echo "none $(tail -n 1 said | head -c 300)"; fi
[ ! -f log ] || tail -n 5 log | head -c 1000
"""
PLACE_SCRIPT = 'umask 077; mkdir -p -- "$1" && printf %s "$2" >"$1/owner"'
# One line for each place that there is: its owner, the job, and the name.
FIND_SCRIPT = """
cd "$1" 2>/dev/null || exit 0
for place in */rung-short-*; do [ ! -f "$place/owner" ] || echo "$(head -c 200 "$place/owner") $place"; done
"""
PLACE = re.compile(r"(\S{1,200}) ([^/\s]{1,200})/(rung-short-[0-9a-f]{12})")
CLEAR_SCRIPT = 'scancel --name="$1" >/dev/null 2>&1; rm -rf -- "$2"'


@dataclass(frozen=True)
class ShortJob:
    """A short command as it is started on a node."""

    words: Sequence[str]
    # Those of sbatch for this site, and the path of short_batch.sh there.
    options: Sequence[str]
    script: str
    # What sets its variables.
    environment: bytes
    # Where a folder for what it prints can be made.
    folder: str


class ShortJobs:
    """Runs short batch jobs on one cluster."""

    def __init__(self, account: HostAccount, sleep: Callable[[float], None] = time.sleep) -> None:
        self._account, self._sleep = account, sleep
        # The names of those that run now.
        self._running: set[str] = set()

    def run(self, job: ShortJob, timeout: float) -> tuple[int, str, str]:
        """Run a command in a batch job: exit code, output, errors. One that ended otherwise is an error (short_end)."""
        name = f"rung-short-{secrets.token_hex(6)}"
        place, limit = f"{job.folder}/{name}", timeout + QUEUE_SECONDS
        words = [*job.options, f"--job-name={name}", f"--output={place}/log", f"--chdir={place}"]
        self._running.add(name)
        try:
            self._account.script(PLACE_SCRIPT, place, this_process())
            with self._account.remote.files() as files:
                files.write(f"{place}/environment", [job.environment], 0o600)
            first, log = self._submit(place, limit, [*words, job.script, place, *job.words])
            code = int(first.removeprefix("code ")) if first.startswith("code ") else None
            if code is None or code in KILLED:
                self._raise_if_cut_short(code, self._last_state(name), (first.removeprefix("none").strip(), log), place)
            return code or 0, self._read(f"{place}/out"), self._read(f"{place}/err")
        except ValueError:
            raise EngineError(f"{self._account.name}: a short job there ended without an exit code") from None
        finally:
            # If that fails, the answer counts all the same, and the sweep removes it.
            with suppress(EngineError, HostError):
                self._account.script(CLEAR_SCRIPT, name, place)
            self._running.discard(name)

    def sweep(self) -> int:
        """End the short jobs that nobody waits for any more, and remove what is left; return how many there were."""
        jobs = f"{self._account.paths().root}/jobs"
        listed = filter(None, map(PLACE.fullmatch, self._account.script(FIND_SCRIPT, jobs).split("\n")))
        left = [found for found in listed if self._is_left(found[1], found[3])]
        for found in left:
            self._account.script(CLEAR_SCRIPT, found[3], f"{jobs}/{found[2]}/{found[3]}")
        return len(left)

    def _is_left(self, owner: str, name: str) -> bool:
        return name not in self._running if owner == this_process() else is_gone(owner)

    def _submit(self, place: str, limit: float, words: Sequence[str]) -> tuple[str, str]:
        """Submit it and wait for its end; return the first line of the script, and the end of the log of the job."""
        argv = ["sh", "-c", SUBMIT_SCRIPT, "rung", place, f"{limit:.0f}", *words]
        ran = self._account.remote.run(argv, timeout=limit + 30)
        first, _, log = ran.out.decode("utf-8", "replace").partition("\n")
        return clean(first).strip(), clean(log.strip())

    def _raise_if_cut_short(self, code: int | None, batch: BatchJob | None, said: tuple[str, str], place: str) -> None:
        by_itself = batch is None or batch.ended_by in (None, EndedBy.ITSELF)
        # What was killed in a job that nobody ended has an exit code, as any command that ends itself so.
        if code is not None and by_itself and not ended_for_memory(batch, said[1]):
            return
        error = error_for(self._account.name, batch, *said)
        if isinstance(error, RunCutShort):
            with suppress(EngineError, HostError, OSError):
                error.output = self._read(f"{place}/out")
        raise error

    def _last_state(self, name: str) -> BatchJob | None:
        """Return what the queue says about a short job that has ended; None: it does not know it."""
        remote = self._account.remote
        asked = ["squeue", "--noheader", "--me", "--states=all", f"--format={QUEUE_FORMAT}", f"--name={name}"]
        for wait in (*STATE_WAITS, None):
            ran = remote.run(asked, timeout=COMMAND_SECONDS)
            if ran.code != 0:
                raise HostUnreachable(f"{remote.name}: the queue does not say what became of a short job")
            jobs = parse_queue(ran.out.decode("utf-8", "replace"))
            found = next((job for job in jobs if job.name == name), None)
            if wait is None or found is None or found.state != "COMPLETING":
                break
            self._sleep(wait)
        return found

    def _read(self, path: str) -> str:
        with self._account.remote.files() as files:
            return files.read(path, 0, OUTPUT_BYTES).decode("utf-8", "replace")
