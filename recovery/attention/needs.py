"""Decides what needs a person. The page, the report of a night and the messages say what is decided here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rung.jobs.job import Attempt, Job, goes_on_after, main_line
from rung.jobs.model.knobs import not_taken
from rung.jobs.model.state import JobState
from rung.recovery.nodes.bad_places import BadPlace

# A host that is away for less is nobody's business.
AWAY_SECONDS = 300.0
# A job that waits this long for a host needs a person; where it may leave its host, this long after it should have.
STUCK_SECONDS = 1800.0
# Jobs that have an attempt to look at.
STARTED = (JobState.LAUNCHING, JobState.RUNNING, JobState.RECOVERING, JobState.STOPPING)


class NeedKind(StrEnum):
    """Why a person is needed, the most urgent first."""

    FAILED = "failed"
    HOST = "waiting for a host"
    SET_ASIDE = "set aside"
    KNOBS = "knobs did not take"
    LADDER = "ladder near its end"


@dataclass(frozen=True)
class Need:
    """Why a job needs a person, or soon may."""

    job: str
    kind: NeedKind
    # A sentence; where it depends on a time, `since` is this time.
    why: str
    since: float | None = None
    # From when on people are told. None: whoever looks sees it, but nobody is told.
    due: float | None = None


def find_needs(job: Job, attempts: Sequence[Attempt], waits: Mapping[int, float]) -> list[Need]:
    """Return what needs a person; `waits`: after which attempts the job began to wait for a host, and when."""
    if job.state is JobState.FAILED:
        return [failed(job.id, job.reason, job.updated_at)]
    if job.state not in STARTED or not attempts:
        return []
    return [*_host(job, attempts[-1], waits), *_knobs(attempts[-1]), *_ladder(job, attempts)]


def most_urgent_first(needs: Iterable[Need]) -> list[Need]:
    return sorted(needs, key=lambda need: [*NeedKind].index(need.kind))


def failed(job: str, reason: str, at: float) -> Need:
    """Return the need of a job that Rung does nothing more about."""
    return Need(job, NeedKind.FAILED, reason, due=at)


def host_away(job: Job, host: str, since: float) -> Need:
    """Return the need of a job whose host does not answer: due when the job should have left it, and has not."""
    due = since + (job.spec.recovery.host_lost_after or STUCK_SECONDS) + AWAY_SECONDS
    return Need(job.id, NeedKind.HOST, f"{host} has not answered", since, due)


def host_awaited(job: str, why: str, since: float) -> Need:
    """Return the need of a job that waits for a host that may have its checkpoints."""
    return Need(job, NeedKind.HOST, why, due=since + STUCK_SECONDS)


def set_aside(bad: Iterable[BadPlace]) -> list[Need]:
    """Return what is set aside for all jobs, each as a need of the job that died there last."""
    return [
        Need(
            each.jobs[-1],
            NeedKind.SET_ASIDE,
            f"check {each.place.name}, then `rung hosts --clear {each.place.node or each.place.host}`: "
            f"after {' and '.join(each.kinds)} in {len(each.jobs)} jobs it gets no job",
            each.since,
        )
        for each in bad
        if each.until is not None
    ]


def _host(job: Job, last: Attempt, waits: Mapping[int, float]) -> Iterator[Need]:
    if last.unreachable_since is not None:
        yield host_away(job, last.some_host, last.unreachable_since)
    elif job.state is JobState.RECOVERING and last.number in waits:
        yield host_awaited(job.id, job.reason, waits[last.number])


def _knobs(last: Attempt) -> Iterator[Need]:
    for name, (asked, live) in not_taken(last.asked, last.effective).items():
        yield Need(last.job_id, NeedKind.KNOBS, f"{name} asked {asked}, effective {live}")
    if last.hands:
        yield Need(last.job_id, NeedKind.KNOBS, f"Rung cannot set knobs inside it: {last.hands}")


def _ladder(job: Job, attempts: Sequence[Attempt]) -> Iterator[Need]:
    """Yield that the next fault may be the last one that Rung can do something about."""
    runs = [each for each in main_line(attempts) if each.number > job.settled]
    if not any(each.fault for each in runs):
        return
    last, rungs = runs[-1], job.spec.recovery.rungs
    if last.rung and rungs and last.rung == rungs[-1].rung:
        yield Need(job.id, NeedKind.LADDER, f"{last.rung} is the last rung of its ladder")
    elif (counted := sum(not goes_on_after(each) for each in runs)) >= job.spec.recovery.max_attempts:
        why = f"this is launch {counted}, the last that max_attempts allows"
        yield Need(job.id, NeedKind.LADDER, why)
