"""Runs a short command as a batch job of its own, such as the check of a checkpoint: never on the login node."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from rung.jobs.model.errors import EngineError, HostError, HostUnreachable
from rung.jobs.model.terminal_text import clean
from rung.runner.engines.on_host.host_account import HostAccount
from rung.runner.seams.remote import OUTPUT_BYTES

# What the cluster may take to find a place for it, beyond its own time.
QUEUE_SECONDS = 300.0
SUBMIT_SCRIPT = """
set -eu
cd "$1"
seconds=$2
shift 2
timeout "$seconds" sbatch --wait "$@" >/dev/null 2>said || :
if [ -f code ]; then echo "code $(head -c 20 code)"; exit; fi
# What sbatch says, or else what the node says in the log: that it took too much memory.
[ -s said ] || [ ! -f log ] || tail -n 1 log >said
echo "none $(tail -n 1 said | head -c 300)"
"""
PLACE_SCRIPT = 'umask 077; mkdir -p -- "$1"'
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

    def __init__(self, account: HostAccount) -> None:
        self._account = account

    def run(self, job: ShortJob, timeout: float) -> tuple[int, str, str]:
        """Run a command in a batch job: exit code, output, errors."""
        name = f"rung-short-{secrets.token_hex(6)}"
        place, limit = f"{job.folder}/{name}", timeout + QUEUE_SECONDS
        words = [*job.options, f"--job-name={name}", f"--output={place}/log", f"--chdir={place}"]
        try:
            self._account.script(PLACE_SCRIPT, place)
            with self._account.remote.files() as files:
                files.write(f"{place}/environment", [job.environment], 0o600)
            said = self._submit(place, limit, [*words, job.script, place, *job.words])
            if not said.startswith("code "):
                why = clean(said.removeprefix("none")).strip() or f"it got no place in {limit:.0f} s"
                raise HostUnreachable(f"{self._account.name}: a short job did not run there: {why}")
            return int(said.removeprefix("code ")), self._read(f"{place}/out"), self._read(f"{place}/err")
        except ValueError:
            raise EngineError(f"{self._account.name}: a short job there ended without an exit code") from None
        finally:
            with suppress(EngineError, HostError):
                self._account.script(CLEAR_SCRIPT, name, place)

    def _submit(self, place: str, limit: float, words: Sequence[str]) -> str:
        argv = ["sh", "-c", SUBMIT_SCRIPT, "rung", place, f"{limit:.0f}", *words]
        ran = self._account.remote.run(argv, timeout=limit + 30)
        return ran.out.decode("utf-8", "replace").strip()

    def _read(self, path: str) -> str:
        with self._account.remote.files() as files:
            return files.read(path, 0, OUTPUT_BYTES).decode("utf-8", "replace")
