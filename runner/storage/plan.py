"""Says what would be removed and what is kept, with sizes, before anything is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import EngineError, HostError, RungError
from rung.jobs.model.event import EventKind
from rung.runner.context import Context
from rung.runner.seams.storage import DiskUse, Storage, Trees, total_use
from rung.runner.storage.here import HERE, LocalStorage
from rung.runner.storage.layout import checkpoint_folder
from rung.runner.storage.shared import place_of, storage_on, trees_on

CHECKPOINTS, COPIES = "checkpoints", "copies of checkpoints"
SET_ASIDE, WORK = "checkpoints that were set aside", "work copies"
TRANSFERS, TREES = "unfinished transfers", "shipped trees"
REPORTS, STARTS = "validation reports", "copies of a `--from` that was killed"
WHOLE = "logs, records, checkpoints, work copies"
YOUR_VOLUME = "a volume is a folder of yours, and Rung removes nothing there"
YOUR_FOLDER = "checkpoint.dir is a folder of yours, and Rung removes nothing there"


@dataclass(frozen=True)
class Removal:
    """Files that go together: of one job in one place, trees of a host, or of no job in RUNG_HOME."""

    job_id: str | None
    where: str
    what: str
    paths: tuple[str, ...]
    use: DiskUse


@dataclass(frozen=True)
class Kept:
    """What stays, and why."""

    job_id: str
    where: str
    what: str
    why: str


@dataclass
class Plan:
    """What a removal would do. `unreachable`: why a host, or a job there, could not be asked, by the name of it."""

    removals: list[Removal] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)
    # The jobs of which every place was seen.
    seen: list[str] = field(default_factory=list)

    @property
    def use(self) -> DiskUse:
        return total_use(each.use for each in self.removals)

    def note(self, where: str, what: str, error: RungError) -> None:
        """Note that something could not be asked about; a host that does not answer is not asked again."""
        self.unreachable[where if isinstance(error, HostError) else f"{what} on {shown_place(where)}"] = str(error)

    def of(self, job_id: str | None) -> list[Removal]:
        return [each for each in self.removals if each.job_id == job_id]


@dataclass(frozen=True)
class Place:
    """A place with files of a job, and the attempts that it had there."""

    storage: Storage
    attempts: tuple[Attempt, ...]

    @property
    def where(self) -> str:
        return self.storage.where


class Places:
    """Finds the files of jobs; a host that did not answer once is not asked again."""

    def __init__(self, context: Context, plan: Plan) -> None:
        self.context, self.plan = context, plan

    def of(self, job: Job) -> Iterator[Place]:
        """Yield this machine, then every host that can be reached; hosts that share a folder are one place."""
        attempts = self.context.store.attempts(job.id)
        here = tuple(each for each in attempts if not each.is_remote)
        yield Place(LocalStorage(self.context.paths, job.id), here)
        for host, there in self.on_hosts(job).items():
            if host in self.plan.unreachable:
                continue
            try:
                storage = storage_on(self.context.engines, host, self.context.request(job, there[-1]))
            except HostError as error:
                self.plan.note(host, job.id, error)
                continue
            yield Place(storage, there)

    def on_hosts(self, job: Job) -> dict[str, tuple[Attempt, ...]]:
        """Return the attempts that a job had on hosts, by the place where those have its files."""
        hosts: dict[str, tuple[Attempt, ...]] = {}
        for attempt in self.context.store.attempts(job.id):
            if attempt.is_remote:
                place = place_of(self.context.engines.hosts, attempt.host)
                hosts[place] = (*hosts.get(place, ()), attempt)
        return hosts

    def trees(self, host: str) -> Trees | None:
        """Return the shipped trees of a host; None: it does not answer."""
        if host in self.plan.unreachable:
            return None
        try:
            return trees_on(self.context.engines, host)
        except (EngineError, HostError) as error:
            self.plan.note(host, TREES, error)
            return None


def folders_of_the_user(job: Job, place: Place) -> list[Kept]:
    """Return the folders that a job could write in one place, and that are not Rung's own."""
    if place.where != HERE:
        volumes = [volume.host for volume in job.spec.mounted if not volume.read_only]
        # Each host has its own, also where they share the folder of the job.
        hosts = sorted({each.host for attempt in place.attempts for each in attempt.places})
        return [Kept(job.id, host, volume, YOUR_VOLUME) for host in hosts for volume in volumes]
    own = all(checkpoint_folder(job, attempt) is not None for attempt in place.attempts)
    return [] if own else [Kept(job.id, HERE, job.spec.checkpoint.dir, YOUR_FOLDER)]


def measured(job: Job, place: Place, wanted: Mapping[str, Sequence[str]]) -> list[Removal]:
    """Return what is there of the wanted paths, by what they are. They are measured at once: hard links count once."""
    uses = place.storage.disk_use([path for paths in wanted.values() for path in paths])
    found = {what: tuple(path for path in paths if path in uses) for what, paths in wanted.items()}
    return [
        Removal(job.id, place.where, what, paths, total_use(uses[path] for path in paths))
        for what, paths in found.items()
        if paths
    ]


def starts_of_active_jobs(context: Context) -> dict[str, list[tuple[Job, str]]]:
    """Return for each job the jobs that began with one of its checkpoints and have not ended, and its name."""
    found: dict[str, list[tuple[Job, str]]] = {}
    for job in context.store.jobs(active=True):
        for event in context.store.events(job.id):
            start = event.data.get("from") if event.kind == EventKind.SUBMITTED else None
            if isinstance(start, dict):
                found.setdefault(str(start["job"]), []).append((job, str(start["file"])))
    return found


def shown_place(where: str) -> str:
    return "this machine" if where == HERE else where
