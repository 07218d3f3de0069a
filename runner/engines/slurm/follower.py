"""Follows all attempts on one cluster from one thread: one look at the queue and one at the records for all of them.

What is asked of the cluster does not grow with the number of jobs, but for the logs that have grown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rung.jobs.model.errors import EngineError, HostError, HostUnreachable
from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.on_host.done_record import write_done
from rung.runner.engines.slurm.job_table import BatchJob, Phase, newest
from rung.runner.engines.slurm.outcome import is_settled, observe
from rung.runner.engines.slurm.queue import SlurmQueue
from rung.runner.engines.slurm.site_log import SiteLog
from rung.runner.engines.slurm.site_paths import SECRETS
from rung.runner.engines.slurm.site_record import SiteRecord, look
from rung.runner.seams.engine import Observation, Presence
from rung.runner.seams.remote import Remote

# So long the queue and the records may disagree about an end: a shared file system shows a new file late.
SETTLE_SECONDS = 30.0
# A host that has not answered for so long is out of reach.
SILENT_SECONDS = 60.0
REMOVE_SECONDS = 60.0
FINAL = (Presence.ENDED, Presence.LOST)


@dataclass
class Followed:
    """One attempt that is followed."""

    name: str
    mark: str
    paths: AttemptPaths
    # Where its record is on the cluster.
    folder: str
    log: SiteLog
    observation: Observation | None = None
    trouble: str = ""
    # Grows with everything that changes it; a look that began before does not count.
    version: int = 1
    # Since when its end is not settled, and whether it is recorded here: then it counts, whatever is seen later.
    unsettled_since: float | None = None
    recorded: bool = False


class SiteFollower:
    """Follows the attempts on one cluster. Its methods may be called from any thread."""

    def __init__(
        self, queue: SlurmQueue, remote: Remote, every: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._queue, self._remote, self._every, self._now = queue, remote, every, now
        self._followed: dict[str, Followed] = {}
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        # Why the last look failed, and since when none has worked.
        self._away = ""
        # How many of our batch jobs have not ended; those submitted since the last look are counted.
        self._in_queue = self._submitted = 0
        self._silent_since: float | None = None

    # Asked by the engine

    def observation(self, name: str, mark: str, paths: AttemptPaths, folder: Callable[[], str]) -> Observation:
        """Return the latest answer about an attempt, which is followed from now on."""
        with self._lock:
            known = self._followed.get(name)
        if known is None:
            known = Followed(name, mark, paths, folder(), SiteLog(paths))
            with self._lock:
                known = self._followed.setdefault(name, known)
            self._look_soon()
        if self._away and self._silent_since is not None and self._now() - self._silent_since > SILENT_SECONDS:
            return Observation(Presence.UNREACHABLE, detail=self._away)
        if known.trouble or known.observation is None:
            return Observation(Presence.WAITING, detail=known.trouble or self._away or f"{self._queue.host} is asked")
        return known.observation

    def refuse_more_than(self, most: int) -> None:
        """Raise if the cluster has as many of our batch jobs as it may have, by the last look at its queue."""
        if self._in_queue >= most:
            raise HostUnreachable(
                f"{self._queue.host}: {self._in_queue} batch jobs are in its queue, and submit_at_most is {most}"
            )

    @property
    def has_jobs(self) -> bool:
        """Tell whether any of our batch jobs was in the queue at the last look, or has been submitted since."""
        return self._in_queue > 0

    def count_submitted(self) -> None:
        self._in_queue, self._submitted = self._in_queue + 1, self._submitted + 1

    def invalidate(self, name: str) -> None:
        """Forget what is known of an attempt, which has just been changed."""
        with self._lock:
            known = self._followed.get(name)
            if known is not None:
                known.version, known.observation = known.version + 1, None
        self._look_soon()

    def forget(self, name: str) -> None:
        with self._lock:
            self._followed.pop(name, None)

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def remove_secrets(self, folder: str) -> None:
        """Remove the secrets of an attempt whose wrapper did not take them up, or may not have."""
        self._remote.run(["rm", "-rf", "--", f"{folder}/{SECRETS}"], timeout=REMOVE_SECONDS)

    # The thread

    def _look_soon(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._follow, name=f"slurm {self._queue.host}", daemon=True)
                self._thread.start()
        self._wake.set()

    def _follow(self) -> None:
        while not self._closed:
            self._wake.wait(self._every if self._followed else None)
            self._wake.clear()
            if self._closed:
                return
            with self._lock:
                followed = list(self._followed.values())
            if followed:
                self._look_and_remember(followed)

    def _look_and_remember(self, followed: Sequence[Followed]) -> None:
        try:
            self.look(followed)
        except (EngineError, HostError) as error:
            self._away = str(error)
            if isinstance(error, HostError) and self._silent_since is None:
                self._silent_since = self._now()
        else:
            self._away, self._silent_since = "", None

    def look(self, followed: Sequence[Followed]) -> None:
        """Look at the queue, then at the records, which are then at least as new; copy the logs that have grown."""
        versions, before = [each.version for each in followed], self._submitted
        batches = self._queue.jobs()
        # One that was submitted meanwhile may be missing in the answer. It may also count twice, until the next look.
        self._in_queue = sum(batch.phase is not Phase.ENDED for batch in batches) + self._submitted - before
        records = look(self._remote, [each.folder for each in followed])
        complete = self._copy_logs(followed, records)
        for each, version, record in zip(followed, versions, records, strict=True):
            try:
                self._take(each, version, newest(batches, each.name, each.mark), record, complete[each.name])
                each.trouble = ""
            except OSError as error:
                each.trouble = _trouble(each, error)

    def _take(self, each: Followed, version: int, batch: BatchJob | None, record: SiteRecord, complete: bool) -> None:
        if each.recorded:
            return
        found = observe(batch, record, self._queue.host, stopped=each.paths.stop.exists())
        if found.presence in FINAL:
            if not self._is_over(each, batch, record, complete=complete):
                return
            if not record.done:
                self.remove_secrets(each.folder)
            each.log.finish(complete=complete)
            write_done(each.paths, found)
            each.recorded = True
        with self._lock:
            if each.version == version:
                each.observation = found

    def _is_over(self, each: Followed, batch: BatchJob | None, record: SiteRecord, *, complete: bool) -> bool:
        """Tell whether an end can be told: all is agreed on and copied, or has been waited for long enough."""
        if complete and is_settled(batch, record):
            return True
        each.unsettled_since = each.unsettled_since if each.unsettled_since is not None else self._now()
        return self._now() - each.unsettled_since > SETTLE_SECONDS

    def _copy_logs(self, followed: Sequence[Followed], records: Sequence[SiteRecord]) -> dict[str, bool]:
        """Copy what is new in the logs; return for each whether all of it is here."""
        complete = {each.name: True for each in followed}
        grown = [(each, size) for each, found in zip(followed, records, strict=True) if (size := found.log_size)]
        behind = [(each, size) for each, size in grown if each.log.length < size]
        if not behind:
            return complete
        with self._remote.files() as files:
            for each, size in behind:
                before = each.log.length
                try:
                    complete[each.name] = each.log.copy(files, f"{each.folder}/log", size)
                except OSError as error:
                    complete[each.name], each.trouble = False, _trouble(each, error)
                if not complete[each.name] and each.log.length > before:
                    self._wake.set()  # it is longer than one portion
        return complete


def _trouble(each: Followed, error: OSError) -> str:
    return f"{error.filename or each.paths.log}: cannot be written here: {error.strerror or error}"
