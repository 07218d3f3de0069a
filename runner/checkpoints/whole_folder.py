"""Lists the whole checkpoint folder of a run that is over once, and keeps that for what is set aside a moment later.

On a host each look into a folder takes a container. Nobody writes there between two attempts, so one look is enough for
the search and for what must be out of the way of the next attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from rung.jobs.job import Attempt
from rung.runner.seams.engine import Engine, FileEntry, Request

# A person may move files into the folder while a job waits for a GPU: what was seen earlier is asked for again.
KEPT_SECONDS = 30.0

Residence = tuple[str, int]


@dataclass
class Seen:
    """All that a search has seen in the folders of residences, and what it began after: an attempt, and a time."""

    attempt: int
    began: float
    folders: dict[Residence, Sequence[FileEntry]] = field(default_factory=dict)

    def look(
        self, engine: Engine, request: Request, residence: Residence, pattern: str
    ) -> Callable[[], list[FileEntry]]:
        """Return what lists the files that match; the host is asked for all of them, and only the first time."""

        def listing() -> list[FileEntry]:
            if residence not in self.folders:
                self.folders[residence] = engine.list_files(request, "*")
            return [entry for entry in self.folders[residence] if fnmatchcase(entry.name, pattern)]

        return listing


class LastSeen:
    """Keeps what the last search of each job has seen."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._seen: dict[str, Seen] = {}

    def keep(self, job_id: str, seen: Seen) -> None:
        self._seen[job_id] = seen
        self._seen = {each: kept for each, kept in self._seen.items() if self._is_fresh(kept)}

    def take(self, attempt: Attempt) -> Sequence[FileEntry] | None:
        """Return, once, what is in the folder of the attempt that follows a search; None: it has to be asked for."""
        seen = self._seen.pop(attempt.job_id, None)
        if seen is None or seen.attempt != attempt.number - 1 or not self._is_fresh(seen):
            return None
        return seen.folders.get((attempt.host, attempt.residence))

    def forget(self, job_id: str) -> None:
        """Drop what was seen for a job that ends without another attempt."""
        self._seen.pop(job_id, None)

    def _is_fresh(self, seen: Seen) -> bool:
        return self._steady() - seen.began <= KEPT_SECONDS
