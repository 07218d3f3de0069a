"""Watches for attempts that run and show no sign of life, and asks them for their stacks before they are stopped.

A sign of life is output in the log, which has the records from inside too, or a change in the checkpoint folder. Time
counts only while this controller looks and the host answers: a controller that was away begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import HostError, RungError
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.terminal_text import clean
from rung.recovery.detect.stacks import standing_at
from rung.recovery.monitors.stalled import Pace, allowed_silence, stall_text
from rung.runner.context import TURN_SECONDS, Context
from rung.runner.controller.log_watch import LogWatch
from rung.runner.files.log_file import LogFile
from rung.runner.seams.engine import FileEntry, Request

# The stacks are written at once, and a host is asked for new output several times a second.
STACKS_SECONDS, STACKS_BYTES = 3.0, 256 * 1024


@dataclass
class _Signs:
    """What was seen of one attempt."""

    # How much of the log has been read, and the pace of the run.
    offset: int
    pace: Pace
    # Whether its first step had been seen at the last sign of life: what comes before that is not its pace.
    has_stepped: bool = False
    # What was in the checkpoint folder when half of the time was over; None: nobody has looked yet.
    files: frozenset[str] | None = None
    # What shows that it is stalled, once it has been asked for its stacks, and the step it had come to.
    evidence: str = ""
    step: int | None = None


class StallWatch:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._signs: dict[tuple[str, int], _Signs] = {}

    def forget(self, job_id: str) -> None:
        """Drop what is kept in memory about a job; the pace of its attempt is in the store."""
        for key in [key for key in self._signs if key[0] == job_id]:
            self._count_anew(key)
            del self._signs[key]

    def count_anew(self, attempt: Attempt) -> None:
        """Begin a new silence: there was a sign of life, or nobody could see whether there was one."""
        self._count_anew(_key(attempt))

    def _count_anew(self, key: tuple[str, int]) -> None:
        for what in ("silent", "stacks"):
            self._context.over((what, *key))
        if signs := self._signs.get(key):
            signs.files, signs.evidence = None, ""

    def longest_gap(self, attempt: Attempt) -> float | None:
        """Return the longest gap between signs of life, once the run has shown a pace."""
        signs = self._signs.get(_key(attempt))
        return round(signs.pace.longest, 1) if signs and signs.pace.is_shown else attempt.longest_gap

    def pause(self, job: Job, attempt: Attempt, longest: float) -> float:
        """Return how long nobody need look at a silent attempt, up to `longest`."""
        signs = self._signs.get(_key(attempt))
        if signs is not None and signs.evidence:
            return TURN_SECONDS  # its stacks come at any moment
        limit = allowed_silence(job.spec.recovery.stalled, signs.pace if signs is not None else Pace(), 0)
        return longest if limit is None else min(longest, max(TURN_SECONDS, limit / 4))

    def too_silent(self, job: Job, attempt: Attempt, watch: LogWatch, *, share: float = 1.0) -> str:
        """Return what shows that an attempt has been silent for this share of its limit; "": it has not."""
        signs, setting = self._seen(attempt, watch), job.spec.recovery.stalled
        silent = self._context.lasting(("silent", *_key(attempt))).seconds
        limit = allowed_silence(setting, signs.pace, 0)
        # Before its first step a run loads, compiles and waits for its other ranks.
        if limit is None or silent < share * limit or attempt.progress_at is None:
            return ""
        limit = allowed_silence(setting, signs.pace, self._stalls_before(job))
        return stall_text(silent, setting, signs.pace) if limit is not None and silent >= share * limit else ""

    def check(self, job: Job, attempt: Attempt, request: Request, watch: LogWatch) -> Fault | None:
        """Return the fault of an attempt that is stalled, when its stacks are in the log."""
        signs = self._signs.get(_key(attempt))
        if signs is not None and signs.evidence:
            return self._with_stacks(attempt, request, watch, signs)
        if not self.too_silent(job, attempt, watch, share=0.5):
            return None
        signs = self._signs[_key(attempt)]
        if signs.files is None or self.too_silent(job, attempt, watch):
            work = partial(self._context.engines.of(attempt).list_files, request, "*")
            found = partial(self._on_files, attempt, request, watch)
            self._context.call_engine(job, attempt, work, found, partial(self._on_error, attempt, found))
        return None

    def _seen(self, attempt: Attempt, watch: LogWatch) -> _Signs:
        """Return what was seen of an attempt, with what is new in its log."""
        signs = self._signs.get(_key(attempt))
        if signs is None:
            pace = Pace.stored(attempt.longest_gap)
            signs = self._signs[_key(attempt)] = _Signs(watch.offset, pace)
        if watch.offset != signs.offset:
            signs.offset = watch.offset
            gap = self._context.lasted(("silent", *_key(attempt)))
            if gap is not None and signs.has_stepped:
                signs.pace = signs.pace.after(gap.seconds)
            signs.has_stepped = attempt.progress_at is not None
            self.count_anew(attempt)
        return signs

    def _stalls_before(self, job: Job) -> int:
        attempts = self._context.store.attempts(job.id)[job.settled :]
        return sum(each.fault is not None and each.fault.kind is FaultKind.STALLED for each in attempts)

    # Before it is stopped

    def _on_files(
        self, attempt: Attempt, request: Request, watch: LogWatch, job: Job, entries: Sequence[FileEntry] | None
    ) -> None:
        """Compare the checkpoint folder with what was there before, and ask for the stacks if nothing has changed."""
        signs = self._seen(attempt, watch)
        found = signs.files if entries is None else frozenset(entry.fingerprint for entry in entries)
        if signs.files is None:
            signs.files = found or frozenset()
        elif found != signs.files:
            self.count_anew(attempt)
        elif evidence := self.too_silent(job, attempt, watch):
            signs.evidence, signs.step = evidence, watch.detector.progress.step
            work = partial(self._context.engines.of(attempt).ask_for_stacks, request.paths)
            self._context.call_engine(job, attempt, work, lambda *_: None, partial(self._on_error, attempt, None))

    def _on_error(self, attempt: Attempt, found: partial[None] | None, job: Job, error: RungError) -> None:
        """Begin anew if the host does not answer; what it refuses to show is no sign of life."""
        if isinstance(error, HostError):
            self.count_anew(attempt)
        elif found is not None:
            found(job, None)

    def _with_stacks(self, attempt: Attempt, request: Request, watch: LogWatch, signs: _Signs) -> Fault | None:
        """Return the fault, with where the run stands, after the time that the stacks may take."""
        step = watch.detector.progress.step
        if step != signs.step:
            self.count_anew(attempt)  # it goes on after all
            return None
        if self._context.lasting(("stacks", *_key(attempt))).seconds < STACKS_SECONDS:
            return None
        text = LogFile(request.paths.log, signs.offset).read(STACKS_BYTES).decode("utf-8", "replace")
        where = clean(standing_at(text))
        note = f"it stands at {where}; the stacks of all threads are at the end of its log" if where else ""
        return Fault(FaultKind.STALLED, signs.evidence, step=step, note=note or "none of its processes showed a stack")


def _key(attempt: Attempt) -> tuple[str, int]:
    return attempt.job_id, attempt.number
