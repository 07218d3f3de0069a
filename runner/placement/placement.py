"""Owns giving waiting jobs their place: who waits, what the hosts have, the attempt and its lease, written at once.

Who gets what is slots' question. An image is fetched and held against the GPU before the GPU is leased.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import HostError, RungError
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.state import JobState
from rung.recovery.decide.checkpoint_choice import Checkpoint
from rung.recovery.decide.decide import Relaunch
from rung.runner.checkpoints.search import CheckpointSearch
from rung.runner.context import Context
from rung.runner.placement.host_pool import HostPool
from rung.runner.placement.scheduler import Answer, HostView, Placed, Refused, Waiting, Waits, could_go, place
from rung.runner.seams.engine import HostEngine
from rung.runner.state import next_attempt, transitions
from rung.runner.validation import gate

# A host that could not get an image is tried again after this.
SHUN_SECONDS = 60.0


class Placing:
    def __init__(self, context: Context, roster: HostPool, finder: CheckpointSearch) -> None:
        self._context, self._roster, self._finder = context, roster, finder
        # What was decided, after which attempt, for jobs that have to go to another host, until there is one.
        self._moving: dict[str, tuple[int, Relaunch]] = {}
        # What is known of images on GPUs, by image and capability: why not, or None.
        self._complaints: dict[tuple[str, tuple[int, int]], str | None] = {}
        self._shunned: dict[tuple[str, str], tuple[float, str]] = {}

    def move(self, job: Job, decision: Relaunch) -> None:
        """Have a recovering job placed anew."""
        self._moving[job.id] = (len(self._context.store.attempts(job.id)), decision)

    def moves(self, job: Job) -> bool:
        if job.id not in self._moving or job.state is not JobState.RECOVERING:
            return False
        return self._moving[job.id][0] == len(self._context.store.attempts(job.id))

    def answers(self, waiting: Sequence[Job], jobs: Sequence[Job]) -> list[tuple[Job, Answer]]:
        """Return a place or a reason for every job that waits, among all jobs that are active."""
        if not waiting:
            return []
        self._roster.refresh()
        taken = {lease.gpu: lease.job_id for lease in self._context.store.leases()}
        asked = [self.waiting(job) for job in waiting]
        return list(zip(waiting, place(asked, self._sites(jobs), taken, self._misfit), strict=True))

    def elsewhere(self, job: Job, host: str) -> list[str]:
        """Return the other hosts that could take a job, free or not."""
        others = [site for site in self._roster.sites({}) if site.host.name != host]
        return could_go(self.waiting(job), others, self._misfit)

    def waits(self, job: Job) -> bool:
        """Tell whether a job is ready to be placed, and is not."""
        if job.spec.image is None or job.cancel_requested or self._context.rests(job.id):
            return False
        if job.state is JobState.RECOVERING:
            return self.moves(job)
        if job.state is not JobState.QUEUED:
            return False
        attempts = self._context.store.attempts(job.id)
        return not attempts or self._finder.find(job, attempts) is not None

    def waiting(self, job: Job) -> Waiting:
        attempts = self._context.store.attempts(job.id)
        image = job.spec.image
        assert image is not None, "only a job with an image goes to a host"
        near = attempts[-1].host if attempts and not attempts[-1].host_lost else None
        return Waiting(job.id, job.spec.resources.gpu, image, job.spec.priority, near, self._avoided(job))

    def _avoided(self, job: Job) -> dict[str, str]:
        """Return where a job must not go, and why."""
        now = self._context.now()
        shunned = {host: why for (of, host), (until, why) in self._shunned.items() if of == job.id and now < until}
        decided = self._moving[job.id][1].avoid if self.moves(job) else ()
        left = {
            one.host: "may still run a lost attempt of it"
            for one in self._context.store.stale()
            if one.job_id == job.id
        }
        return {**dict.fromkeys(decided, "is avoided after its faults"), **shunned, **left}

    def _sites(self, jobs: Sequence[Job]) -> list[HostView]:
        last = [self._context.store.attempts(job.id)[-1:] for job in jobs if job.state is not JobState.QUEUED]
        return self._roster.sites(Counter(attempt.host for found in last for attempt in found))

    def _misfit(self, image: str, gpu: Gpu) -> str | None:
        return self._complaints.get((image, gpu.capability))

    # Answers

    def act(self, answer: Answer, job: Job) -> None:
        """Do what an answer means for a job: write its attempt, or say why it waits."""
        if isinstance(answer, Placed):
            self._placed(job, answer)
        elif isinstance(answer, Waits):
            self._context.say(job, answer.reason)
        elif isinstance(answer, Refused) and job.state is JobState.QUEUED:
            transitions.refused(self._context.store, job, answer.reason, at=self._context.now())
        else:
            self._context.say(job, f"waits for another host: {answer.reason}")

    def _placed(self, job: Job, placed: Placed) -> None:
        if self._context.tasks.busy(job.id):
            return
        engine = self._context.engines.on(placed.host)
        if placed.gpus and (placed.image, placed.gpus[0].capability) not in self._complaints:
            work = partial(_look_into, engine, placed, partial(self._tell, job.id))
            done = (partial(self._looked, placed), partial(self._not_fetched, placed))
            self._context.tasks.send(job.id, placed.host, work, done, slow=True)
            self._context.say(job, f"{placed.host} is fetching the image")
            return
        self._write(job, placed)

    def _tell(self, job_id: str, text: str) -> None:
        self._context.progress[job_id] = text

    def _looked(self, placed: Placed, job: Job, complaint: str | None) -> None:
        self._complaints[placed.image, placed.gpus[0].capability] = complaint

    def _not_fetched(self, placed: Placed, job: Job, error: RungError) -> None:
        self._context.say(job, str(error))
        self._roster.forget(placed.host)
        if not isinstance(error, HostError):
            why = f"could not get the image ({str(error).removeprefix(f'{placed.host}: ')[:160]})"
            self._shunned[job.id, placed.host] = (self._context.now() + SHUN_SECONDS, why)

    def _write(self, job: Job, placed: Placed) -> None:
        """Write the attempt, the lease and the change of state, all at once."""
        store, at = self._context.store, self._context.now()
        attempts = store.attempts(job.id)
        placement = next_attempt.Placement(
            placed.host, placed.gpus, placed.image, next_attempt.next_residence(attempts, placed.host)
        )
        if job.state is JobState.RECOVERING:
            next_attempt.carry_out(store, job, self._moving.pop(job.id)[1], placement, at=at)
        else:
            checkpoints = self._checkpoints(job, attempts)
            attempt = next_attempt.asked_by_person(job, attempts, checkpoints, placement, gate.because(store, job))
            transitions.launching(store, job, attempt, at=at)
        self._finder.forget(job.id)
        self._roster.forget(placed.host)

    def _checkpoints(self, job: Job, attempts: Sequence[Attempt]) -> list[Checkpoint]:
        return (self._finder.find(job, attempts) or []) if attempts else []


def _look_into(engine: HostEngine, placed: Placed, tell: partial[None]) -> str | None:
    """Have the image on the host and hold it against the GPU; runs beside the loop."""
    engine.ensure_image(placed.image, tell)
    return engine.incompatibility(placed.image, placed.gpus[0])
