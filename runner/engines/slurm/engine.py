"""Runs attempts as batch jobs of a Slurm cluster, over the connection to its login node.

An attempt is known by the name and the mark of its batch job: numbers come again. A batch job that exists is adopted,
never submitted twice, and its wrapper runs an attempt once, whatever the cluster does. Nothing that takes long runs on
the login node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rung.jobs.model.errors import ConfigFileError, EngineError, HostError, HostUnreachable
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.paths import IN_INSIDE, AttemptPaths
from rung.jobs.site.settings import Site
from rung.runner.engines.on_host.done_record import read_done
from rung.runner.engines.on_host.host_account import HostAccount
from rung.runner.engines.on_host.job_files import LISTING_BYTES, HostStorage, JobFiles
from rung.runner.engines.slurm.batch import (
    batch_words,
    environment,
    mark_of,
    name_of,
    seen_by_the_job,
    short_words,
    tree_of,
)
from rung.runner.engines.slurm.doubts import Doubts
from rung.runner.engines.slurm.follower import SiteFollower
from rung.runner.engines.slurm.job_table import BatchJob, Phase
from rung.runner.engines.slurm.queue import QueueAway, SlurmQueue
from rung.runner.engines.slurm.short_job import ShortJob, ShortJobs
from rung.runner.engines.slurm.site_paths import paths_of
from rung.runner.files.inside import INSIDE, scan_inside
from rung.runner.files.ship import scan_workdir
from rung.runner.files.shipped_trees import ShippedTrees
from rung.runner.files.work_copy import edited_texts, with_edits
from rung.runner.seams.engine import FileEntry, Observation, Presence, Request
from rung.runner.seams.remote import Remote

# Only we may read them; on a cluster nobody knows before which node needs them, so they are not in memory alone.
SECRETS_SCRIPT = 'set -eu; umask 077; rm -rf -- "$1"; mkdir -- "$1"'


class SlurmEngine:
    """Runs attempts on one cluster. Its methods may be called from any thread."""

    def __init__(self, remote: Remote, store_id: str, site: Site) -> None:
        self.host = remote.name
        self._remote, self._store_id, self._site = remote, store_id, site
        self._account = HostAccount(remote, store_id, folder=site.root)
        self._job_files = JobFiles(self._account, self._run_files)
        self._queue = SlurmQueue(remote, store_id)
        self._follower = SiteFollower(self._queue, remote, site.poll)
        self._short_jobs = ShortJobs(self._account)
        self._doubts = Doubts(remote.name)
        self._starting = threading.Lock()

    def close(self) -> None:
        self._follower.close()

    # A site brings its images itself, and shows which GPUs it gave only after the start.

    def ensure_image(self, image: str, on_progress: Callable[[str], None]) -> None:
        """Do nothing: what starts the container brings the image."""

    def incompatibility(self, image: str, gpu: Gpu) -> str | None:
        return None

    def sweep(self) -> int:
        """End the short jobs that a controller has left; return how many there were."""
        return self._short_jobs.sweep()

    # Starting

    def start(self, request: Request, secrets: Mapping[str, str]) -> None:
        name = self._name(request.paths)
        if request.paths.stop.exists():
            return
        try:
            # One at a time: a lost answer is looked for before anything is submitted again.
            with self._starting:
                # The limit comes first: what waits for it must not ask the cluster again and again.
                self._follower.refuse_more_than(self._site.submit_at_most)
                if self._find(request.paths) is None and not self._has_begun(request.paths):
                    self._doubts.refuse(name)
                    self._submit(name, request, secrets)
                    self._follower.count_submitted()
        except QueueAway as error:
            # It is no fault of the cluster, and no reason to try another one: the attempt waits.
            raise HostUnreachable(str(error)) from None
        finally:
            self._follower.invalidate(name)

    def _submit(self, name: str, request: Request, secrets: Mapping[str, str]) -> None:
        layout, shipper = self._account.layout(), self._account.shipper()
        paths = paths_of(request, layout)
        tree = self._shipped(seen_by_the_job(self._site, request, paths)) if request.source else layout.inside
        shipper.copy(tree, paths.work, paths.record, paths.job, paths.scratch, paths.text(str(request.checkpoint_dir)))
        with self._remote.files() as files:
            files.write(f"{paths.record}/environment", [environment(self._site, request, paths)], 0o600)
        if request.secrets:
            self._account.put_secrets(SECRETS_SCRIPT, paths.secrets, {key: secrets[key] for key in request.secrets})
        options, script = batch_words(self._site, request, paths, name)
        try:
            with self._doubts.about(name):
                self._queue.submit(options, script, others=self._follower.has_jobs)
        except EngineError:
            # Nobody takes them up. Not after a HostError: the batch job may be there.
            self._follower.remove_secrets(paths.record)
            raise

    def _shipped(self, request: Request) -> str:
        """Ship the workdir with its config files as this attempt wants them."""
        assert request.source is not None, "a job on a cluster has a workdir"
        tree = scan_workdir(request.source, request.paths.home)
        try:
            tree, content = with_edits(tree, edited_texts(request.source, request.edits))
        except ConfigFileError as error:
            raise EngineError(str(error)) from None
        return self._account.shipper().ship(request.source, tree, content)

    def _has_begun(self, paths: AttemptPaths) -> bool:
        """Tell whether the attempt has run before, although the cluster has forgotten it."""
        said = self._account.script('[ ! -d "$1/claim" ] || echo begun', self._account.record_folder(paths))
        return said.strip() == "begun"

    # Watching and stopping

    def observe(self, paths: AttemptPaths) -> Observation:
        done = read_done(paths)
        if done is not None:
            self._follower.forget(self._name(paths))
            return done
        name, mark = self._name(paths), mark_of(self._store_id, paths)
        found = self._follower.observation(name, mark, paths, lambda: self._account.record_folder(paths))
        if found.presence is Presence.REFUSED:
            self._take_out_of_the_queue(paths)
        return found

    def _take_out_of_the_queue(self, paths: AttemptPaths) -> None:
        job = self._find(paths)
        if job is not None and job.phase is Phase.WAITING:
            self._queue.cancel(job)

    def stop(self, paths: AttemptPaths, *, force: bool) -> None:
        asked = paths.stop.exists()
        # The mark comes first: a start that is under way finds the mark, or we find its batch job.
        paths.folder.mkdir(parents=True, exist_ok=True)
        paths.stop.touch()
        try:
            with self._starting:
                job = self._find(paths)
            if job is None:
                self._follower.remove_secrets(self._account.record_folder(paths))
            elif job.phase is Phase.WAITING:
                self._queue.cancel(job)
            elif job.phase is Phase.RUNNING and (force or not asked):
                self._signal(job, force=force)
        except (EngineError, HostError):
            if not asked:
                paths.stop.unlink(missing_ok=True)
            raise
        finally:
            if force or not asked:
                self._follower.invalidate(self._name(paths))

    def _signal(self, job: BatchJob, *, force: bool) -> None:
        if force:
            self._queue.signal(job, "KILL", all_processes=True)
        else:
            self._queue.signal(job, "TERM")

    def ask_for_stacks(self, paths: AttemptPaths) -> None:
        job = self._find(paths)
        if job is not None and job.phase is Phase.RUNNING:
            self._queue.signal(job, "USR1")

    def kill_unannounced(self, paths: AttemptPaths) -> None:
        """Kill the attempt without a mark, as a failing machine would. Used by drills."""
        job = self._find(paths)
        if job is not None:
            self._signal(job, force=True)

    def _find(self, paths: AttemptPaths) -> BatchJob | None:
        return self._queue.find(self._name(paths), mark_of(self._store_id, paths))

    # Files of an attempt

    def run(self, argv: Sequence[str], request: Request, timeout: float) -> tuple[int, str, str]:
        """Run a short command as a batch job of its own, with the environment of the attempt."""
        layout = self._account.layout()
        paths = paths_of(request, layout)
        self._account.script('umask 077; mkdir -p "$1"', paths.job)
        words, options = short_words(self._site, replace(request, argv=tuple(argv)), paths)
        short = ShortJob(
            words=words,
            options=options,
            script=f"{layout.inside}/short_batch.sh",
            environment=environment(self._site, request, paths),
            folder=layout.paths.job_root(request.job_id),
        )
        return self._short_jobs.run(short, timeout)

    def _run_files(
        self, request: Request, arguments: Sequence[str], writable: bool, seconds: float
    ) -> tuple[int, str, str]:
        """Run the script for files on the login node: it only lists, links and moves, or copies a checkpoint."""
        layout = self._account.layout()
        paths = paths_of(request, layout)
        argv = ["sh", f"{IN_INSIDE}/files.sh", *arguments]
        ran = self._remote.run([paths.text(word) for word in argv], timeout=seconds)
        out, err = (raw[:LISTING_BYTES].decode("utf-8", "replace") for raw in (ran.out, ran.err))
        return ran.code, out, err

    def list_files(self, request: Request, pattern: str) -> list[FileEntry]:
        return self._job_files.list(request, pattern)

    def move(self, request: Request, names: Sequence[str], aside: Path) -> None:
        self._job_files.move(request, names, aside)

    def copy(self, source: Request, request: Request, name: str, new_name: str | None = None) -> None:
        self._job_files.copy(source, request, name, new_name or name)

    def remove_residence(self, request: Request, residence: int) -> None:
        self._job_files.remove_residence(request, residence)

    def fetch(self, request: Request, entry: FileEntry, to: Path) -> Path:
        return self._job_files.fetch(request, entry, to)

    def deliver(self, request: Request, file: Path) -> None:
        self._job_files.deliver(request, file)

    def storage(self, request: Request) -> HostStorage:
        return HostStorage(self._job_files, request, lambda asked: asked, self.host)

    def trees(self) -> ShippedTrees:
        return ShippedTrees(self._remote, self._account.paths(), self._trees_in_use)

    def _trees_in_use(self) -> set[str]:
        jobs = [job for job in self._queue.jobs() if job.phase is not Phase.ENDED]
        return {scan_inside(INSIDE).id, *filter(None, (tree_of(job.mark) for job in jobs))}

    def _name(self, paths: AttemptPaths) -> str:
        return name_of(self._store_id, paths)
