"""Talks to Slurm by its own commands, over the connection to a login node.

`squeue` is asked once for all jobs. The text forms are used, which are the same in all versions.
"""

from __future__ import annotations

from collections.abc import Sequence

from rung.jobs.model.errors import EngineError, HostUnreachable, NeverTaken
from rung.jobs.model.terminal_text import clean
from rung.jobs.site.refusals import PER_JOB, read_refusal
from rung.runner.engines.slurm.job_table import QUEUE_FORMAT, BatchJob, newest, parse_queue, parse_submitted
from rung.runner.seams.remote import OUTPUT_BYTES, CommandResult, Remote

# A command repeats itself for nine seconds while the controller of the cluster is away, and a busy one takes long.
COMMAND_SECONDS = 60.0
# After so long, sbatch is ended on the login node itself, also when our connection to it has broken.
SUBMIT_SECONDS = 50.0
TIMED_OUT = 124
MOST_ERROR = 300
# What a command says, in any case of letters, while the controller of the cluster is away or busy.
AWAY = (
    "unable to contact slurm controller",
    "socket timed out",
    "zero bytes were transmitted",
    "temporarily un",  # unable to accept job; unavailable
    "connection refused",
    "connection reset",
    "connection timed out",
)
# A limit on the jobs of a user, or a job that is larger than any that the user may have: it says the same about both.
LIMIT = "accounting/qos policy"
# The user has as many jobs as the cluster takes, whoever submitted them.
MANY = "maxsubmitjob"


class QueueAway(EngineError):
    """The cluster cannot be asked or takes no job now, although its login node answers. Later it may."""


class SlurmQueue:
    """The queue of one cluster, for the jobs of one store."""

    def __init__(self, remote: Remote, store_id: str) -> None:
        self._remote, self._prefix, self.host = remote, f"rung-{store_id}-", remote.name

    def jobs(self, name: str = "") -> list[BatchJob]:
        """Return all batch jobs of this store that the cluster knows, also those that have just ended.

        `name`: only those with this name.
        """
        asked = ["squeue", "--noheader", "--me", "--states=all", f"--format={QUEUE_FORMAT}"]
        ran = self._run([*asked, *([f"--name={name}"] if name else [])])
        if ran.code != 0:
            raise QueueAway(f"{self.host}: its queue cannot be read: {_error(ran)}")
        # Some ten thousand lines. A job that is not in a list that was cut is not gone.
        if len(ran.out) >= OUTPUT_BYTES:
            raise QueueAway(f"{self.host}: its queue has more jobs of yours than can be read")
        return [job for job in parse_queue(_text(ran.out)) if job.name.startswith(self._prefix)]

    def find(self, name: str, mark: str) -> BatchJob | None:
        """Return the batch job of an attempt; None: the cluster has none."""
        return newest(self.jobs(name), name, mark)

    def submit(self, options: Sequence[str], script: Sequence[str], *, others: bool) -> str:
        """Submit a batch job and return its number. Whether a lost answer made one is for `find` to tell.

        `others`: we have other jobs there, so that a limit may be reached only for now.
        """
        ran = self._run(["timeout", f"{SUBMIT_SECONDS:.0f}", "sbatch", *options, *script])
        number = parse_submitted(_text(ran.out)) if ran.code == 0 else None
        if number is not None:
            return number
        if ran.code == TIMED_OUT:
            raise HostUnreachable(f"{self.host}: sbatch did not end in {SUBMIT_SECONDS:.0f} s")
        said, takes_not = _text(ran.err), f"{self.host}: the cluster does not take the job"
        if may_take_it_later(said, others=others):
            raise QueueAway(f"{takes_not}: {_error(ran)}")
        excluding = any(word.startswith("--exclude=") for word in options)
        if refusal := read_refusal(said, _error(ran), excluding=excluding):
            raise NeverTaken(f"{takes_not}: {refusal.text}")
        raise EngineError(f"{takes_not}: {_error(ran)}")

    def signal(self, job: BatchJob, name: str, *, all_processes: bool = False) -> None:
        """Send a signal to the script of a batch job, or to all its processes. One that waits has none."""
        self._run(["scancel", "--full" if all_processes else "--batch", f"--signal={name}", job.number])

    def cancel(self, job: BatchJob) -> None:
        """Take a job out of the queue; one that runs is ended."""
        ran = self._run(["scancel", job.number])
        if ran.code != 0:
            raise EngineError(f"{self.host}: batch job {job.number} cannot be cancelled: {_error(ran)}")

    def _run(self, argv: Sequence[str]) -> CommandResult:
        return self._remote.run(list(argv), timeout=COMMAND_SECONDS)


def may_take_it_later(said: str, *, others: bool) -> bool:
    """Tell from what sbatch said when it took no job whether it may take the same one later."""
    lower = said.lower()
    beyond = PER_JOB.search(said) is not None
    return any(words in lower for words in (*AWAY, MANY)) or (others and LIMIT in lower and not beyond)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _error(ran: CommandResult) -> str:
    """Return the last line that a command of Slurm printed, without its own name."""
    lines = [line for line in _text(ran.err or ran.out).splitlines() if line.strip()]
    last = lines[-1].partition("error: ")[2] or lines[-1] if lines else f"exit code {ran.code}"
    return clean(last.strip())[:MOST_ERROR]
