"""Finds what each job can resume from, once per decision, and tells whether it can leave a host that is away.

The search runs in a worker thread. Its result is kept until the next attempt is written. Verdicts are stored as they
come: a search that fails later need not open the same files again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.engine import PlacedBy
from rung.jobs.model.errors import HostError, RungError
from rung.jobs.model.event import EventKind
from rung.recovery.decide.checkpoint_choice import (
    UNVERIFIED,
    Sighting,
    Unseen,
    choose_checkpoint,
    may_have_saved,
    unseen_among,
)
from rung.recovery.decide.quarantine import quarantined
from rung.recovery.decide.resume_limit import resume_limit
from rung.runner.checkpoints.residences import Query, Source, mirrored, residence_of, search
from rung.runner.checkpoints.shared_files import engines_with_files, hosts_with_files
from rung.runner.checkpoints.verify import NewVerdict
from rung.runner.checkpoints.whole_folder import LastSeen, Seen
from rung.runner.context import Context, Lasting
from rung.runner.seams.engine import Engine
from rung.runner.state.codec import verdict_to_dict
from rung.runner.state.transitions import gave_up_hosts
from rung.runner.task_pool import Lane

# Between two searches of a job that waits: at first, and when it has waited for long.
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 2.0, 30.0
NONE_WRITTEN = "the job has saved no checkpoint that Rung can see: every relaunch begins at step 0"


class CheckpointSearch:
    """Finds each job's checkpoints once per decision."""

    def __init__(self, context: Context, away: Callable[[str], Lasting | None]) -> None:
        """`away` tells how long a host has not answered; None: it answers."""
        self._context, self._away = context, away
        self._found: dict[str, tuple[int, list[Sighting]]] = {}
        # The verdicts that a search has found and that are not stored yet.
        self._new: defaultdict[str, deque[NewVerdict]] = defaultdict(deque)
        self.last_seen = LastSeen(context.steady)

    def find(
        self, job: Job, attempts: Sequence[Attempt], before: int | None = None, of_trial: Attempt | None = None
    ) -> list[Sighting] | None:
        """Return what is known about the checkpoints that the job can resume from; None while the search runs.

        `before` limits the search to earlier steps, for a run that still writes: its newest file is always unseen.
        `of_trial` limits it to those of one trial.
        """
        if not attempts:
            # What came with the job (start_from.py).
            return [*mirrored(self._context.paths.mirror(job.id), self._context.store.verdicts(job.id))]
        known = self._found.get(job.id)
        if known is not None and known[0] == attempts[-1].number:
            return known[1]
        if self._context.tasks.busy(job.id):
            return None
        line = main_line(attempts)
        seen = Seen(attempts[-1].number, self._context.steady())
        trial = {residence_of(of_trial): [of_trial]} if of_trial is not None else None
        sources = [self._source(job, *each, seen) for each in (trial or self._residences(job)).items()]
        limit = before if before is not None or of_trial is not None else resume_limit(line, job.knobs)
        asked = [*line, of_trial] if of_trial is not None else line
        verdicts, mirror = self._context.store.verdicts(job.id), self._context.paths.mirror(job.id)
        query = Query(job.spec.checkpoint.searched, asked, limit, verdicts, mirror)
        work = partial(search, sources, query, partial(self._hold, job.id))
        done = partial(self._take, seen), self._failed
        self._context.tasks.submit(job.id, attempts[-1].host, work, done, lane=Lane.SLOW)
        return None

    def _hold(self, job_id: str, verdict: NewVerdict) -> None:
        """Hold a new verdict until the loop stores it; called by the worker."""
        self._new[job_id].append(verdict)
        self._context.agenda.wake(job_id)

    def forget(self, job_id: str) -> None:
        self._found.pop(job_id, None)

    def job_ended(self, job_id: str) -> None:
        self.forget(job_id)
        self.last_seen.forget(job_id)

    def wait(self, job: Job, because: str) -> None:
        """Show what a job waits for, once as an event, and search again soon; less often when it waits for long."""
        store, number = self._context.store, self._context.store.attempts(job.id)[-1].number
        self.forget(job.id)
        waited = self._context.lasting(("waiting for a host", job.id, number)).seconds
        self._context.back_off(job.id, min(max(RETRY_SECONDS, waited / 10), LONGEST_RETRY_SECONDS))
        self._context.set_reason(job, because)
        recorded = (event.attempt for event in store.events(job.id) if event.kind == EventKind.WAITING_FOR_HOST)
        if number not in recorded:
            with store.transaction():
                data = {"because": because}
                store.add_event(job.id, number, EventKind.WAITING_FOR_HOST, data, at=self._context.now())

    def can_leave(self, job: Job) -> bool:
        """Tell whether a job whose host is away would lose nothing, or has what it needs to go on.

        That is a healthy copy here, or another host that has the same folder.
        """
        store = self._context.store
        attempts = main_line(store.attempts(job.id))
        if self._others_have_files(job, attempts[-1]):
            return True
        recent = main_line(store.attempts(job.id)[job.settled :])
        copies = mirrored(self._context.paths.mirror(job.id), store.verdicts(job.id), attempts)
        if choose_checkpoint(copies, recent, resume_limit(recent, job.knobs)).checkpoint is not None:
            return True
        return not (self._written(job.id) or may_have_saved(attempts, job.spec.checkpoint.every))

    def _others_have_files(self, job: Job, last: Attempt) -> bool:
        """Tell whether a host that answers has the files of an attempt, beside the one that does not."""
        names = hosts_with_files(self._context.engines.hosts, job, last.host)
        # Of an attempt on several hosts, the leading one may be the one that answers.
        asked = names if last.members else names[1:]
        return any(self._away(name) is None for name in asked)

    # The residences of a job

    def _residences(self, job: Job) -> dict[tuple[str, int], list[Attempt]]:
        """Return the attempts of each residence, the last one first."""
        residences: dict[tuple[str, int], list[Attempt]] = {}
        for attempt in main_line(self._context.store.attempts(job.id)):
            # The last attempt of a residence has its folder; later residences come first.
            here = residences.pop((attempt.host, attempt.residence), [])
            residences[attempt.host, attempt.residence] = [*here, attempt]
        return dict(reversed(residences.items()))

    def _source(self, job: Job, residence: tuple[str, int], here: Sequence[Attempt], seen: Seen) -> Source:
        unseen, last, engines = self._unseen(job, here), here[-1], self._context.engines
        found: Sequence[Engine] = ()
        try:
            found = engines_with_files(engines, job, last) if last.is_remote else (engines.of(last),)
        except HostError as error:
            unseen = replace(unseen, why=str(error))
        # A host that is known to be away is asked last: to wait for it takes a while.
        found = sorted(found, key=lambda engine: last.is_remote and self._away(engine.host) is not None)
        kept = seen if last.is_remote and all(map(_wrote_all, here)) else None
        return Source(residence, found, self._context.request(job, last), unseen, kept)

    def _unseen(self, job: Job, here: Sequence[Attempt]) -> Unseen:
        """Return the answer for a residence whose host cannot be asked, with what its attempts have reported."""
        last, bound = here[-1], job.spec.recovery.host_lost_after
        away = self._away(last.host) if last.is_remote else None
        # A host may answer and still not show the files: its disk is full, or its engine refuses every container.
        troubles = (away, self._context.lasted(("unseen", job.id, last.host)))
        too_long = bound is not None and any(each.seconds >= bound for each in troubles if each is not None)
        newest_first = sorted({name: step for each in here for name, step in each.saved.items()}.items(), key=_step)
        written = tuple(name for name, _ in newest_first) or self._written(job.id)
        return Unseen(
            last.host,
            "no answer",
            since=datetime.fromtimestamp(away.since).strftime("%H:%M:%S") if away else "",
            given_up=last.host_lost or too_long or self._was_lost(job, last.host),
            abandoned=last.number <= job.settled and gave_up_hosts(self._context.store, job),
            saved=written,
            may_have=bool(written) or may_have_saved(here, job.spec.checkpoint.every),
        )

    def _was_lost(self, job: Job, host: str) -> bool:
        """Tell whether the newest attempt, which may be a trial, was given up with this host."""
        newest = self._context.store.attempts(job.id)[-1]
        return newest.host_lost and newest.host == host

    def _written(self, job_id: str) -> tuple[str, ...]:
        """Return the names of checkpoints that were seen anywhere: there is a verdict on them."""
        fingerprints = self._context.store.verdicts(job_id)
        return tuple(sorted({fingerprint.rsplit(":", 2)[0] for fingerprint in fingerprints}, reverse=True))

    # Results

    def keep(self, job: Job) -> None:
        """Store the verdicts that have come since the last turn, with one event each."""
        come = self._new.get(job.id)
        new = list(come or ())
        if come is None or not new:
            return
        store, at = self._context.store, self._context.now()
        number = store.attempts(job.id)[-1].number
        # A file that cannot be verified is tried again in every search; once in the history is enough.
        earlier = (event for event in store.events(job.id) if event.kind == EventKind.CHECKPOINT)
        told = [event.data for event in earlier if event.attempt == number]
        with store.transaction():
            for fingerprint, verdict in new:
                data = {"file": fingerprint.rsplit(":", 2)[0], **verdict_to_dict(verdict)}
                if verdict.verdict != UNVERIFIED:
                    store.put_verdict(job.id, fingerprint, verdict)
                if data not in told:
                    store.add_event(job.id, number, EventKind.CHECKPOINT, data, at=at)
        for _ in new:
            come.popleft()

    def _take(self, seen: Seen, job: Job, found: list[Sighting]) -> None:
        self._keep_last(job)
        self.last_seen.keep(job.id, seen)
        store, at = self._context.store, self._context.now()
        attempts = store.attempts(job.id)
        number = attempts[-1].number
        self._count_unseen(job, {each.host for each in attempts}, {each.host for each in unseen_among(found)})
        with store.transaction():
            self._record_events(job, number, found, at)
        self._found[job.id] = (number, found)

    def _count_unseen(self, job: Job, hosts: set[str], unseen: set[str]) -> None:
        """Count how long each host of a job does not show its checkpoints."""
        for host in hosts:
            if host in unseen:
                self._context.lasting(("unseen", job.id, host))
            else:
                self._context.over(("unseen", job.id, host))

    def _record_events(self, job: Job, number: int, found: Sequence[Sighting], at: float) -> None:
        """Record, once each, the checkpoints that are quarantined, and that a job writes none."""
        store = self._context.store
        recorded = [(event.kind, event.data.get("file"), event.data.get("why")) for event in store.events(job.id)]
        for name, mark in quarantined(store.attempts(job.id)).items():
            if (EventKind.QUARANTINED, name, mark.why) not in recorded:
                because = f"{name} is quarantined: {mark.why}; it stays where it is and is not resumed from again"
                data = {"file": name, "why": mark.why, "because": because}
                store.add_event(job.id, number, EventKind.QUARANTINED, data, at=at)
        kinds = {kind for kind, _, _ in recorded}
        if job.spec.knobs.mode == "zero-edit" and not found and EventKind.NO_CHECKPOINT not in kinds:
            store.add_event(job.id, number, EventKind.NO_CHECKPOINT, {"because": NONE_WRITTEN}, at=at)

    def _keep_last(self, job: Job) -> None:
        """Store the verdicts that are left after a search, which holds no more of them."""
        self.keep(job)
        self._new.pop(job.id, None)

    def _failed(self, job: Job, error: RungError) -> None:
        self._keep_last(job)
        self._context.set_reason(job, f"its checkpoints cannot be looked at: {error}")
        self._context.back_off(job.id, RETRY_SECONDS)


def _wrote_all(attempt: Attempt) -> bool:
    """Tell whether all that an attempt has written is there to be seen on its host.

    One that was given up with its host may still run, and what other nodes have written may be seen late.
    """
    alone = attempt.engine.placed_by is PlacedBy.RUNG and not attempt.members
    return alone and attempt.ended_at is not None and not attempt.host_lost


def _step(saved: tuple[str, int]) -> int:
    return -saved[1]
