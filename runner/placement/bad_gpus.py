"""Tells the scheduler which GPUs are set aside after faults, for all jobs or for one that died there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rung.jobs.job import Attempt, Job
from rung.jobs.model.engine import PlacedBy
from rung.jobs.model.state import JobState
from rung.recovery.decide.decide import Relaunch
from rung.recovery.nodes.avoid import gpus_to_use_last
from rung.recovery.nodes.bad_places import BadPlace, find_bad_places, relevant
from rung.runner.context import Context
from rung.runner.placement.places import GpuKey, HostView, Placed, WaitingJob
from rung.runner.views.hosts_table import why_set_aside


class BadGpus:
    """What is set aside now; the store is read again only when an attempt has ended or a person has cleared one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._read_at = -1
        self._attempts: list[Attempt] = []
        self._asked: object = None
        self._found: list[BadPlace] = []

    def now(self) -> list[BadPlace]:
        """Return what is avoided at this moment."""
        store = self._context.store
        newest = store.newest_end()
        if newest != self._read_at:
            self._attempts, self._read_at = relevant(store.ended_lately()), newest
        cleared, now = store.cleared_places(), self._context.now()
        # It is asked several times a second while jobs wait.
        asked = (newest, cleared, int(now))
        if asked != self._asked:
            self._asked, self._found = asked, find_bad_places(self._attempts, now, cleared)
        return self._found

    def mark(self, views: Sequence[HostView]) -> list[HostView]:
        """Return the hosts with the reason at each GPU that is set aside for all jobs."""
        return mark(views, self.now(), self._context.now())

    def for_job(self, waiting: WaitingJob, job: Job, bad: Sequence[BadPlace]) -> WaitingJob:
        """Return a waiting job with the GPUs where it died, and with those that it keeps while it recovers.

        `bad`: what is avoided now. It is asked for once for all jobs that wait, because each time reads the store.
        """
        if not waiting.requests or not (bad or job.state is JobState.RECOVERING):
            return waiting
        attempts = self._context.store.attempts(job.id)
        if not attempts:
            return waiting
        last = attempts[-1]
        keeps = job.state is JobState.RECOVERING and not last.host_lost
        own = frozenset(_keys(last)) if keeps else frozenset()
        return replace(waiting, use_last=gpus_to_use_last(job.id, bad), own=own)

    def is_left(self, decision: Relaunch, last: Attempt) -> bool:
        """Tell whether a relaunch looks for other GPUs: its own are set aside, or it died there lately."""
        if decision.trial is not None or last.engine.placed_by is PlacedBy.SITE or not last.gpus:
            return False
        bad = self.now()
        aside = {(each.place.host, each.place.gpu) for each in bad if each.until is not None}
        return not (aside | gpus_to_use_last(last.job_id, bad)).isdisjoint(_keys(last))


def with_place(decision: Relaunch, last: Attempt, placed: Placed) -> Relaunch:
    """Return a relaunch that says which GPUs it got after its own failed."""
    if decision.avoid or last.host_lost or not placed.gpus:
        return decision
    gpus = ", ".join(f"{gpu.type} {gpu.index}" for gpu in placed.gpus)
    before, after = set(_keys(last)), {(place.host, gpu.uuid) for place in placed.places for gpu in place.gpus}
    how = " again" if before == after else ", not where it had the fault" if before.isdisjoint(after) else ""
    return replace(decision, because=f"{decision.because}; on {placed.host}'s {gpus}{how}")


def _keys(attempt: Attempt) -> list[GpuKey]:
    return [(place.host, gpu.uuid) for place in attempt.places for gpu in place.gpus]


def mark(views: Sequence[HostView], bad: Sequence[BadPlace], now: float) -> list[HostView]:
    """Return the hosts with the reason at each GPU that is set aside for all jobs."""
    why = {(each.place.host, each.place.gpu): why_set_aside(each, now) for each in bad if each.until is not None}
    return [_marked(view, why) if why else view for view in views]


def _marked(view: HostView, why: dict[tuple[str, str | None], str]) -> HostView:
    name = view.host.name
    return replace(
        view, slots=tuple(replace(slot, set_aside=why.get((name, slot.gpu.uuid), "")) for slot in view.slots)
    )
