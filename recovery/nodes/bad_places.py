"""Decides which GPUs of hosts, and which nodes of sites, are set aside, for one job or for all, and until when.

All of it follows from the attempts of all jobs and from what a person cleared, so a new controller decides the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.engine import PlacedBy
from rung.recovery.nodes.blame import Blame, blame

# The first time that a place is set aside: long enough for somebody to reset a GPU, short enough to lose no night to
# a fault that was over at once. It doubles each time the place fails again.
FIRST_SECONDS = 3600.0
# A place gets one chance a day at least: hosts are repaired without anybody telling Rung.
LONGEST_SECONDS = 86_400.0
# Faults of so many jobs, with no success in between, are the place's own: one job alone may bring its fault with it.
JOBS_FOR_ALL = 2
# Older faults do not count. A week holds more chances than it takes to double up to the longest time.
COUNTED_SECONDS = 7 * 86_400.0
# The command ended well there: the GPU has done the work of a whole run.
CLEAN = frozenset({Outcome.SUCCEEDED, Outcome.FELL_SHORT})


@dataclass(frozen=True)
class Place:
    """Where an attempt ran: a GPU of a host, by its UUID, or a node of a site, which chooses the GPUs by itself."""

    host: str
    node: str | None = None
    gpu: str | None = None
    # What a person calls it: `titan2's TITANRTX 0`.
    name: str = field(default="", compare=False)


@dataclass(frozen=True)
class BadPlace:
    """A place that one job or all of them avoid now."""

    place: Place
    # Faults there since the last success, their kinds, the jobs that had them, and the newest.
    faults: int
    kinds: tuple[str, ...]
    jobs: tuple[str, ...]
    last_at: float
    evidence: str
    # For all jobs: since when it is set aside, and until when; None: it is not.
    since: float | None = None
    until: float | None = None
    # The jobs that avoid it, each until when.
    avoided_by: Mapping[str, float] = field(default_factory=dict)


def places_of(attempt: Attempt) -> tuple[Place, ...]:
    """Return where an attempt ran, as exactly as it is known; empty: nowhere that could be avoided.

    A job that asked for no GPU says nothing about one, nor does one on several hosts: nobody knows which it was.
    """
    host = attempt.host
    if attempt.members:
        return ()
    if attempt.engine.placed_by is PlacedBy.SITE:
        return (Place(host, node=attempt.node, name=f"{attempt.node} of {host}"),) if attempt.node else ()
    return tuple(Place(host, gpu=gpu.uuid, name=f"{host}'s {gpu.type} {gpu.index}") for gpu in attempt.gpus)


def relevant(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return the attempts that decide something: those at places where one had a fault of the machine."""
    found = [(attempt, places_of(attempt)) for attempt in attempts]
    failed = {place for attempt, places in found if _is_counted(attempt) for place in places}
    return [attempt for attempt, places in found if not failed.isdisjoint(places)]


def find_bad_places(
    attempts: Iterable[Attempt], now: float, cleared: Mapping[str, float] | None = None
) -> list[BadPlace]:
    """Return the places that a job or all jobs avoid now.

    `attempts` are those of all jobs that have ended lately. `cleared`: when a person gave a host, a node or a GPU, by
    its name or UUID, another chance. What happened before that does not count, nor does what a clock that was set back
    has put into the future.
    """
    counted = [each for each in attempts if each.ended_at is not None and now - COUNTED_SECONDS < each.ended_at <= now]
    counted.sort(key=lambda each: each.ended_at or 0.0)
    travelling = _travelling(counted)
    records: dict[Place, _Record] = {}
    for attempt in counted:
        at = attempt.ended_at or 0.0
        for place in places_of(attempt):
            if at > _cleared_at(place, cleared or {}):
                _take(records, place, attempt, travels=attempt.job_id in travelling)
    found = [record.at(now) for record in records.values()]
    return [each for each in found if each.until is not None or each.avoided_by]


def _take(records: dict[Place, _Record], place: Place, attempt: Attempt, *, travels: bool) -> None:
    if attempt.outcome in CLEAN:
        records.pop(place, None)
    elif _is_counted(attempt):
        records.setdefault(place, _Record(place)).add(attempt, travels=travels)


def _is_counted(attempt: Attempt) -> bool:
    return blame(attempt.fault) in (Blame.MACHINE, Blame.OPEN)


def _cleared_at(place: Place, cleared: Mapping[str, float]) -> float:
    names = (place.host, place.node, place.gpu)
    return max((cleared[name] for name in names if name is not None and name in cleared), default=float("-inf"))


def _travelling(attempts: Sequence[Attempt]) -> set[str]:
    """Return the jobs whose open fault came at several places: it goes where they go, so no place is to blame."""
    seen: dict[str, set[tuple[Place, ...]]] = {}
    for attempt in attempts:
        if blame(attempt.fault) is Blame.OPEN and places_of(attempt):
            seen.setdefault(attempt.job_id, set()).add(places_of(attempt))
    return {job for job, places in seen.items() if len(places) > 1}


def seconds_aside(times: int) -> float:
    """Return how long a place is set aside the first time, the second time, and so on."""
    return min(FIRST_SECONDS * 2.0 ** min(times - 1, 16), LONGEST_SECONDS)


class _Record:
    """The faults at one place since the last success there, in the order of time."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._faults: list[Attempt] = []
        self._named: set[str] = set()
        self._open: set[str] = set()
        self._times, self._since, self._until = 0, 0.0, float("-inf")

    def add(self, attempt: Attempt, *, travels: bool) -> None:
        self._faults.append(attempt)
        at = attempt.ended_at or 0.0
        if blame(attempt.fault) is Blame.MACHINE:
            self._named.add(attempt.job_id)
        elif not travels:
            self._open.add(attempt.job_id)
        # Several jobs of a node may die of one fault: only a chance that failed makes the time longer.
        if self._witnesses() >= JOBS_FOR_ALL and at >= self._until:
            self._times += 1
            self._since, self._until = at, at + seconds_aside(self._times)

    def _witnesses(self) -> int:
        """Return how many jobs speak against the place; of jobs of one name, one that leaves the cause open."""
        named = {_name(job) for job in self._named}
        return len(self._named) + len({_name(job) for job in self._open} - named)

    def at(self, now: float) -> BadPlace:
        last = self._faults[-1]
        until: dict[str, float] = {}
        for job in dict.fromkeys(each.job_id for each in self._faults):
            mine = [each.ended_at or 0.0 for each in self._faults if each.job_id == job]
            until[job] = mine[-1] + seconds_aside(len(mine))
        aside = self._until > now
        return BadPlace(
            self._place,
            len(self._faults),
            tuple(dict.fromkeys(each.fault.kind.value for each in self._faults if each.fault)),
            tuple(until),
            last.ended_at or 0.0,
            last.fault.evidence if last.fault else "",
            self._since if aside else None,
            self._until if aside else None,
            {job: end for job, end in until.items() if end > now},
        )


def _name(job_id: str) -> str:
    """Return the name in the id of a job: jobs of one name run one script, and can have its fault in common."""
    return job_id.rpartition("-")[0]
