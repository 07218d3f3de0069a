"""Places waiting jobs: asks the scheduler, then writes the attempt and its lease in one transaction.

What is free on this machine is found in local_slots. An image is fetched and checked against the GPU before the GPU is
leased.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from rung.jobs.job import Attempt, Job
from rung.jobs.model.engine import PlacedBy
from rung.jobs.model.errors import HostError, RungError
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.host import Host
from rung.jobs.model.state import JobState
from rung.jobs.site.partitions import Partition, why_never
from rung.recovery.decide.decide import Relaunch, why_retry_waits
from rung.recovery.nodes.bad_places import BadPlace
from rung.runner.checkpoints.search import CheckpointSearch
from rung.runner.context import Context
from rung.runner.launch.engine_fit import why_unfit
from rung.runner.launch.known_sites import why_nowhere
from rung.runner.launch.site_request import asked_of
from rung.runner.placement.bad_gpus import BadGpus, with_place
from rung.runner.placement.host_pool import HostPool
from rung.runner.placement.places import HostView, MustWait, Placed, PlacementResult, Refused, WaitingJob
from rung.runner.placement.scheduler import candidates, place
from rung.runner.seams.engine import HostEngine
from rung.runner.state import next_attempt, transitions
from rung.runner.task_pool import Lane
from rung.runner.validation import gate

# A host that could not get an image is tried again after this.
AVOID_SECONDS = 60.0


class Placer:
    def __init__(self, context: Context, host_pool: HostPool, checkpoint_search: CheckpointSearch) -> None:
        self._context, self._host_pool, self._checkpoint_search = context, host_pool, checkpoint_search
        # Decisions for jobs that must go to another host, each with the number of attempts it was made after.
        self._moving: dict[str, tuple[int, Relaunch]] = {}
        # Why an image cannot run on a GPU, by image and capability; None if it can.
        self._incompatibilities: dict[tuple[str, tuple[int, int]], str | None] = {}
        self._avoided_until: dict[tuple[str, str], tuple[float, str]] = {}
        self.bad_gpus = BadGpus(context)

    def job_ended(self, job_id: str) -> None:
        self._moving.pop(job_id, None)
        self._avoided_until = {key: until for key, until in self._avoided_until.items() if key[0] != job_id}

    def move(self, job: Job, decision: Relaunch) -> None:
        """Have a recovering job placed anew: on another host, or on other GPUs."""
        self._moving[job.id] = (len(self._context.store.attempts(job.id)), decision)

    def moves(self, decision: Relaunch, last: Attempt) -> bool:
        """Tell whether a relaunch is to be placed anew instead of where the job was."""
        return bool(decision.avoid) or last.host_lost or self.bad_gpus.is_left(decision, last)

    def is_moving(self, job: Job) -> bool:
        if job.id not in self._moving or job.state is not JobState.RECOVERING:
            return False
        return self._moving[job.id][0] == len(self._context.store.attempts(job.id))

    def results(self, waiting: Sequence[Job], jobs: Sequence[Job]) -> list[tuple[Job, PlacementResult]]:
        """Return a result for every job of `waiting`, or only why they wait; `jobs` are all active ones."""
        if not waiting:
            return []
        self._host_pool.refresh()
        taken = {(lease.host, lease.gpu): lease.job_id for lease in self._context.store.leases()}
        bad = self.bad_gpus.now()
        requests = [self._waiting_job(job, bad) for job in waiting]
        found = place(requests, self._views(jobs), taken, self._incompatible)
        results = [(job, self._or_refused(job, result)) for job, result in zip(waiting, found, strict=True)]
        if self._host_pool.awaits_first_answers():
            return [
                each for each, asked, result in zip(results, requests, found, strict=True) if is_sure(asked, result)
            ]
        return results

    def _or_refused(self, job: Job, result: PlacementResult) -> PlacementResult:
        """Return the result, or a refusal where every host that could take the job is a site that never will."""
        if not isinstance(result, MustWait):
            return result
        why = why_nowhere(job.spec, self._context.engines.hosts, self._partitions)
        return Refused(job.id, why) if why else result

    def _partitions(self, host: Host) -> Sequence[Partition]:
        return self._host_pool.partitions(host.name)

    def _why_never(self, job: Job, host: Host) -> str | None:
        return why_never(host.site, asked_of(job.spec), self._partitions(host)) if host.site else None

    def elsewhere(self, job: Job, host: str) -> list[str]:
        """Return the other hosts that could take a job, free or not."""
        views = self.bad_gpus.mark(self._host_pool.views({}))
        waiting = self._waiting_job(job, self.bad_gpus.now())
        if job.spec.resources.nodes > 1:
            # Whichever of its hosts is away: it cannot be used.
            return candidates(waiting, views, self._incompatible)
        others = [view for view in views if view.host.name != host]
        return candidates(waiting, others, self._incompatible)

    def spare_gpus(self, job: Job, attempt: Attempt, most: int) -> list[tuple[Gpu, ...]] | None:
        """Return GPUs beside an attempt's own, of the same kind, that nobody uses or waits for; None: not known yet."""
        # Two containers in the network of the host could want the same port, and two processes on this machine too.
        shares_ports = not attempt.is_remote or job.spec.network == "host"
        if (
            not attempt.gpus
            or attempt.members
            or shares_ports
            or attempt.engine.placed_by is PlacedBy.SITE
            or self._somebody_waits(job)
        ):
            return []
        if not self._host_pool.is_fresh(attempt.host):
            return None
        views = self.bad_gpus.mark(self._host_pool.views({}))
        slots = [slot for view in views if _is_usable(view, attempt) for slot in view.slots if not slot.set_aside]
        taken = {lease.gpu for lease in self._context.store.leases() if lease.host == attempt.host}
        free = [slot.gpu for slot in slots if slot.gpu.uuid not in taken and not slot.foreign_process]
        return _sets_of([gpu for gpu in free if gpu.type == attempt.gpus[0].type], len(attempt.gpus))[:most]

    def _somebody_waits(self, job: Job) -> bool:
        others = [each for each in self._context.store.jobs(active=True) if each.id != job.id and each.spec.is_remote]
        return any(each.state is JobState.QUEUED or self.is_moving(each) for each in others)

    def is_ready(self, job: Job) -> bool:
        """Tell whether a job waits for a host or for this machine, and everything else is ready."""
        if job.cancel_requested or self._context.is_backing_off(job.id):
            return False
        if job.state is JobState.RECOVERING:
            return self.is_moving(job)
        if job.state is not JobState.QUEUED:
            return False
        attempts = self._context.store.attempts(job.id)
        checkpoints = self._checkpoint_search.find(job, attempts) if attempts else []
        if checkpoints is None:
            return False
        why = why_retry_waits(job, attempts, checkpoints) if attempts else None
        if why is not None:
            self._checkpoint_search.wait(job, why)
        return why is None

    def _waiting_job(self, job: Job, bad: Sequence[BadPlace]) -> WaitingJob:
        attempts = self._context.store.attempts(job.id)
        near = attempts[-1].host if attempts and not attempts[-1].host_lost else None
        wanted = job.spec.resources.gpu, job.spec.image, job.spec.priority
        nodes = job.spec.resources.nodes
        waiting = WaitingJob(job.id, *wanted, near, self._avoided(job), nodes=nodes)
        return self.bad_gpus.for_job(waiting, job, bad)

    def _avoided(self, job: Job) -> dict[str, str]:
        """Return the hosts where a job must not go, each with the reason."""
        now = self._context.steady()
        failed = {host: why for (of, host), (until, why) in self._avoided_until.items() if of == job.id and now < until}
        decided = self._moving[job.id][1].avoid if self.is_moving(job) else ()
        left = {
            one.host: "may still run a lost attempt of it"
            for one in self._context.store.orphans()
            if one.job_id == job.id
        }
        listed = self._context.engines.hosts
        hosts = {host.name: why_unfit(job.spec, host) or self._why_never(job, host) for host in listed}
        unable = {name: why for name, why in hosts.items() if why is not None}
        return {**dict.fromkeys(decided, "is avoided after its faults"), **failed, **left, **unable}

    def _views(self, jobs: Sequence[Job]) -> list[HostView]:
        last = [self._context.store.attempts(job.id)[-1:] for job in jobs if job.state is not JobState.QUEUED]
        return self.bad_gpus.mark(
            self._host_pool.views(Counter(place.host for (attempt,) in last for place in attempt.places))
        )

    def _incompatible(self, image: str, gpu: Gpu) -> str | None:
        return self._incompatibilities.get((image, gpu.capability))

    # Results

    def apply(self, result: PlacementResult, job: Job) -> None:
        """Write the attempt of a job that was placed; otherwise show why it waits."""
        if isinstance(result, Placed):
            self._on_placed(job, result)
        elif isinstance(result, MustWait):
            self._context.set_reason(job, result.reason)
        elif isinstance(result, Refused) and job.state is JobState.QUEUED:
            transitions.refused(self._context.store, job, result.reason, at=self._context.now())
        else:
            self._context.set_reason(job, f"waits for another host: {result.reason}")

    def _on_placed(self, job: Job, placed: Placed) -> None:
        if self._context.tasks.busy(job.id):
            return
        if placed.image is not None and not self._is_checked(placed.image, placed.gpus):
            engine = self._context.engines.on(placed.host)
            on_progress = partial(self._context.tell_progress, job.id)
            work = partial(_check_image, engine, placed.image, placed.gpus[0], on_progress)
            callbacks = (partial(self._on_image_checked, placed), partial(self._on_fetch_error, placed))
            self._context.tasks.submit(job.id, placed.host, work, callbacks, lane=Lane.SLOW)
            self._context.set_reason(job, f"{placed.host} is fetching the image")
            return
        self._write(job, placed)

    def _is_checked(self, image: str, gpus: Sequence[Gpu]) -> bool:
        """Tell whether it is known that an image can run on these GPUs, or cannot."""
        return not gpus or (image, gpus[0].capability) in self._incompatibilities

    def _on_image_checked(self, placed: Placed, job: Job, incompatibility: str | None) -> None:
        assert placed.image is not None, "only an image is checked"
        self._incompatibilities[placed.image, placed.gpus[0].capability] = incompatibility

    def _on_fetch_error(self, placed: Placed, job: Job, error: RungError) -> None:
        self._context.set_reason(job, str(error))
        self._host_pool.forget(placed.host)
        if not isinstance(error, HostError):
            why = f"could not get the image ({str(error).removeprefix(f'{placed.host}: ')[:160]})"
            self._avoided_until[job.id, placed.host] = (self._context.steady() + AVOID_SECONDS, why)

    def _write(self, job: Job, placed: Placed) -> None:
        """Write the attempt, the lease and the change of state in one transaction."""
        store, at = self._context.store, self._context.now()
        attempts = store.attempts(job.id)
        residence = next_attempt.next_residence(attempts, placed.host)
        placement = next_attempt.Placement(
            placed.host, placed.gpus, placed.image, residence, placed.engine, placed.members
        )
        if job.state is JobState.RECOVERING:
            decision = with_place(self._moving.pop(job.id)[1], attempts[-1], placed)
            next_attempt.carry_out(store, job, decision, placement, at=at)
        else:
            checkpoints = self._checkpoint_search.find(job, attempts)
            if checkpoints is None:
                return  # forgotten since it was ready; it is placed when they are known again
            attempt = next_attempt.asked_by_person(job, attempts, checkpoints, placement, gate.because(store, job))
            transitions.launching(store, job, attempt, at=at)
        self._checkpoint_search.forget(job.id)
        for each in placed.places:
            self._host_pool.forget(each.host)


def _is_usable(view: HostView, attempt: Attempt) -> bool:
    return view.host.name == attempt.host and not view.trouble


def _check_image(engine: HostEngine, image: str, gpu: Gpu, on_progress: partial[None]) -> str | None:
    """Fetch the image on the host and return why it cannot run on the GPU; runs in the task pool."""
    engine.ensure_image(image, on_progress)
    return engine.incompatibility(image, gpu)


def _sets_of(gpus: Sequence[Gpu], size: int) -> list[tuple[Gpu, ...]]:
    """Return as many sets of `size` GPUs as there are."""
    return [tuple(gpus[first : first + size]) for first in range(0, len(gpus) - size + 1, size)]


def is_sure(job: WaitingJob, result: PlacementResult) -> bool:
    """Tell whether a result stands while hosts have not answered yet.

    A job that takes several types of GPUs may be placed better on one of them, and no job is refused before.
    """
    return isinstance(result, MustWait) or (isinstance(result, Placed) and len(job.requests) == 1)
