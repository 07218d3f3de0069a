"""Runs attempts as containers on a host, over the one connection to that host.

An attempt is identified by the name and labels of its container. A container that exists is adopted, never created
twice. `start` ships, pulls and creates, so it may take minutes: call it from a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rung.jobs.model.errors import ConfigFileError, EngineError, HostError, HostUnreachable
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.host import ENGINE_SOCKET
from rung.jobs.model.paths import IN_INSIDE, AttemptPaths, HostPaths
from rung.jobs.spec.volume import host_path
from rung.runner.engines.docker.api import EngineApi
from rung.runner.engines.docker.completion import Completion
from rung.runner.engines.docker.container_config import (
    STORE_LABEL,
    container_config,
    container_name,
    files_config,
    labels,
)
from rung.runner.engines.docker.container_state import Status, parse_inspect
from rung.runner.engines.docker.empty_image import PROGRAM_FOLDERS, ensure_empty_image
from rung.runner.engines.docker.images import Images
from rung.runner.engines.docker.log_follower import LogFollower
from rung.runner.engines.docker.network import Networks
from rung.runner.engines.docker.probe import Probe
from rung.runner.engines.docker.secrets_in_memory import put_secrets
from rung.runner.engines.docker.shared_folder import see_shared_folder
from rung.runner.engines.on_host.done_record import read_done
from rung.runner.engines.on_host.host_account import HostAccount
from rung.runner.engines.on_host.job_files import LISTING_BYTES, HostStorage, JobFiles
from rung.runner.engines.on_host.layout import HostLayout
from rung.runner.files.inside import INSIDE, scan_inside
from rung.runner.files.ship import Shipper, scan_workdir
from rung.runner.files.shipped_trees import ShippedTrees, mounted_trees
from rung.runner.files.work_copy import edited_texts, with_edits
from rung.runner.hosts.host_volumes import VolumeRules, resolve_volumes
from rung.runner.hosts.registry_login import NO_LOGINS, RegistryLogins
from rung.runner.seams.engine import Container, FileEntry, Observation, Request
from rung.runner.seams.remote import Remote

OnProgress = Callable[[str], None]
FILES_SCRIPT = ("/bin/sh", f"{IN_INSIDE}/files.sh")
WHY_NO_ROOT = (
    "and a job is never run as root: log in with another account (ansible_user in the list of hosts) that may use the "
    "Docker Engine"
)


class DockerEngine:
    """Runs attempts in containers on one host. Its methods may be called from any thread."""

    def __init__(
        self,
        remote: Remote,
        store_id: str,
        socket: str = ENGINE_SOCKET,
        logins: RegistryLogins = NO_LOGINS,
        volume_roots: tuple[str, ...] = (),
        folder: str = "",
    ) -> None:
        """`folder`: where the files of jobs are on the host, if not in the home of our account."""
        self.host = remote.name
        self._remote, self._store_id = remote, store_id
        self._api = EngineApi(remote, socket, logins)
        self._account = HostAccount(remote, store_id, PROGRAM_FOLDERS, WHY_NO_ROOT, lambda home: folder)
        self._probe = Probe(self._api, self._account)
        self._job_files = JobFiles(self._account, self._in_container)
        self._networks = Networks(self._api, store_id)
        self._completion = Completion(self._api, remote, store_id, self._account.record_folder, self._networks)
        self._volume_rules = VolumeRules(remote.name, socket, volume_roots)
        self._follower = LogFollower(self._completion)
        self.images = Images(self._api, self._probe.in_image)

    def close(self) -> None:
        """Stop following logs and looking; the connection is closed by its owner."""
        self._probe.close()
        self._follower.close()

    def ensure_image(self, image: str, on_progress: OnProgress) -> None:
        """Pull the image by its digest if the host does not have it; EngineError when that fails."""
        self.images.ensure(image, on_progress)

    def incompatibility(self, image: str, gpu: Gpu) -> str | None:
        """Return why the image cannot run on this GPU, or None. The image must be on the host. The answer is cached."""
        return self.images.incompatibility(image, gpu)

    # Starting

    def start(self, request: Request, secrets: Mapping[str, str]) -> None:
        name = self._name(request.paths)
        if request.paths.stop.exists():
            return
        try:
            found = self._api.inspect(name)
            if found is None:
                request = self._ready(request)
                self._create_and_start(name, request, secrets, self._prepare(request))
                return
            self._refuse_foreign(found, request)
            if parse_inspect(found).status is Status.CREATED:
                # A controller was killed between the two steps, or all parts of an attempt have been created first.
                self._create_and_start(name, request, secrets, None)
        finally:
            self._follower.invalidate(name, request.paths)

    def create(self, request: Request) -> None:
        """Create the container without starting it, if there is none yet."""
        name = self._name(request.paths)
        if request.paths.stop.exists():
            return
        found = self._api.inspect(name)
        if found is not None:
            self._refuse_foreign(found, request)
            return
        request = self._ready(request)
        try:
            self._create(name, request, self._prepare(request))
        except EngineError:
            self._remove(name, request.paths)
            raise

    def discard(self, paths: AttemptPaths) -> None:
        name = self._name(paths)
        self._remove(name, paths)
        self._follower.invalidate(name, paths)

    def _prepare(self, request: Request) -> HostLayout:
        """Bring everything to the host that the container needs."""
        wanted, source = self._container(request), request.source
        layout, shipper = self._account.layout(), self._account.shipper()
        paths, job, number = layout.paths, request.job_id, request.attempt
        if request.paths.node:
            # The leading host has brought it.
            see_shared_folder(self._account, paths.record(job, number, request.paths.node))
            return layout
        tree = self._shipped(source, request, shipper) if source else layout.inside
        kept = host_path(str(request.checkpoint_dir), wanted.volumes)
        # Only a volume for checkpoints is made; another one that is missing is a mistake.
        records = [paths.record(job, number, node) for node in range(request.nodes)]
        folders = (*records, paths.job(job, wanted.residence), *((kept[1].host,) if kept else ()))
        shipper.copy(tree, paths.work(job, number), *folders)
        return layout

    def _with_resolved_volumes(self, request: Request) -> Request:
        """Return the request with the paths that its volumes really have on the host; some are refused."""
        wanted = self._container(request)
        kept = host_path(str(request.checkpoint_dir), wanted.volumes)
        home, made = self._account.user().home, kept[0] if kept else None
        found = resolve_volumes(self._account.script, wanted.volumes, home, self._volume_rules, made=made)
        return replace(request, container=replace(wanted, volumes=found))

    def _shipped(self, source: Path, request: Request, shipper: Shipper) -> str:
        """Ship the workdir with its config files as this attempt wants them."""
        tree = scan_workdir(source, request.paths.home)
        try:
            tree, content = with_edits(tree, edited_texts(source, request.edits))
        except ConfigFileError as error:
            raise EngineError(str(error)) from None
        return shipper.ship(source, tree, content)

    def _container(self, request: Request) -> Container:
        if request.container is None:
            raise EngineError(f"{request.job_id} names no image, and {self.host} runs only containers")
        return request.container

    def _create_and_start(
        self, name: str, request: Request, secrets: Mapping[str, str], layout: HostLayout | None
    ) -> None:
        """Create the container if there is none yet, and start it; remove it if it cannot be started."""
        try:
            if request.secrets:
                put_secrets(self._account, request.paths, {key: secrets[key] for key in request.secrets})
            if layout is not None:
                self._create(name, request, layout)
            self._api.start(name)
        except EngineError:
            # Not after a HostError: the start may have reached the host.
            self._remove(name, request.paths)
            raise

    def _create(self, name: str, request: Request, layout: HostLayout) -> None:
        if self._container(request).network == "own":
            self._networks.create(name, labels(self._store_id, request.job_id, request.attempt))
        if not self._api.create(name, container_config(request, layout)):
            raise HostUnreachable(f"{self.host}: somebody else is creating {name}")

    def _remove(self, name: str, paths: AttemptPaths) -> None:
        self._api.remove(name)
        self._networks.remove(name)
        self._completion.remove_secrets(paths)

    def _refuse_foreign(self, found: Mapping[str, Any], request: Request) -> None:
        config = found.get("Config")
        theirs = config.get("Labels") if isinstance(config, dict) else None
        ours = labels(self._store_id, request.job_id, request.attempt)
        if not isinstance(theirs, dict) or any(theirs.get(key) != value for key, value in ours.items()):
            name = self._name(request.paths)
            raise EngineError(f"{self.host}: there is a container {name} which is not ours: remove or rename it")

    # Watching and stopping

    def observe(self, paths: AttemptPaths) -> Observation:
        done = read_done(paths)
        if done is not None:
            self._follower.forget(paths)
            return done
        return self._follower.observation(self._name(paths), paths)

    def stop(self, paths: AttemptPaths, *, force: bool) -> None:
        name, asked = self._name(paths), paths.stop.exists()
        # The mark comes first: a start that is under way finds the mark, or we find its container.
        paths.folder.mkdir(parents=True, exist_ok=True)
        paths.stop.touch()
        try:
            status = parse_inspect(self._api.inspect(name)).status
            if status is Status.CREATED:
                self._remove(name, paths)
            elif status is Status.RUNNING and (force or not asked):
                self._api.kill(name, "KILL" if force else "TERM")
        except (EngineError, HostError):
            if not asked:
                paths.stop.unlink(missing_ok=True)
            raise
        finally:
            if force or not asked:
                self._follower.invalidate(name, paths)

    def ask_for_stacks(self, paths: AttemptPaths) -> None:
        # Its first process passes it on. One without a trap for it is not ended by it, as the first of its container.
        self._api.kill(self._name(paths), "USR1")

    def kill_unannounced(self, paths: AttemptPaths) -> None:
        """Kill the attempt without a mark, as a failing machine would. Used by drills."""
        self._api.kill(self._name(paths), "KILL")

    def sweep(self) -> int:
        """Remove the temporary containers that nobody uses any more; return how many there were."""
        return self._probe.sweep()

    # Files of an attempt

    def run(self, argv: Sequence[str], request: Request, timeout: float) -> tuple[int, str, str]:
        """Run a short command in a temporary container of the attempt's image, read-only and without network."""
        return self._probe.in_attempt(argv, self._ready(request), timeout)

    def _in_container(
        self, request: Request, arguments: Sequence[str], writable: bool, seconds: float
    ) -> tuple[int, str, str]:
        """Run the script for files in a throw-away container that sees the folder of this job alone."""
        layout = self._account.layout()
        ensure_empty_image(self._api, layout.user.machine)
        config = files_config(request, layout, (*FILES_SCRIPT, *arguments), writable=writable)
        return self._probe.run(config, seconds, LISTING_BYTES)

    def list_files(self, request: Request, pattern: str) -> list[FileEntry]:
        return self._job_files.list(self._with_resolved_volumes(request), pattern)

    def move(self, request: Request, names: Sequence[str], aside: Path) -> None:
        self._job_files.move(self._with_resolved_volumes(request), names, aside)

    def copy(self, source: Request, request: Request, name: str, new_name: str | None = None) -> None:
        resolved = self._with_resolved_volumes(source), self._with_resolved_volumes(request)
        self._job_files.copy(*resolved, name, new_name or name)

    def remove_residence(self, request: Request, residence: int) -> None:
        self._job_files.remove_residence(request, residence)

    def fetch(self, request: Request, entry: FileEntry, to: Path) -> Path:
        return self._job_files.fetch(self._with_resolved_volumes(request), entry, to)

    def deliver(self, request: Request, file: Path) -> None:
        self._job_files.deliver(self._with_resolved_volumes(request), file)

    def storage(self, request: Request) -> HostStorage:
        return HostStorage(self._job_files, request, self._with_resolved_volumes, self.host)

    def trees(self) -> ShippedTrees:
        paths = self._account.paths()
        return ShippedTrees(self._remote, paths, lambda: self._trees_in_use(paths))

    def _trees_in_use(self, paths: HostPaths) -> set[str]:
        mounted = mounted_trees(self._api.containers({STORE_LABEL: self._store_id}), paths.trees)
        return {scan_inside(INSIDE).id, *mounted}

    def _ready(self, request: Request) -> Request:
        """Bring the image to the host, and return the request with the volumes that may be mounted there."""
        self.ensure_image(self._container(request).image, lambda progress: None)
        return self._with_resolved_volumes(request)

    def _name(self, paths: AttemptPaths) -> str:
        return container_name(self._store_id, paths.job_id, paths.number)
