"""Owns the Docker engine: an attempt as a container on a host, reached over that host's one connection.

An attempt is known by its container's name and labels. What is found under its name is adopted, never made twice.
`start` ships, pulls and creates, so it may take minutes: call it where nobody waits.
"""

from __future__ import annotations

import secrets as random
import threading
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from jobs.errors import EngineError, HostUnreachable
from jobs.gpu import Gpu
from jobs.host import ENGINE_SOCKET
from jobs.paths import AttemptPaths, HostPaths
from recovery.lines import clean
from runner.container import (
    Account,
    Place,
    checkpoint_folder,
    container_config,
    container_name,
    labels,
    look_config,
    secrets_folder,
)
from runner.engine import Capabilities, Container, FileEntry, Observation, Request
from runner.engineapi import EngineApi
from runner.images import Images
from runner.lookout import Lookout
from runner.nvidia import GPU_QUERY, parse_gpus
from runner.process import INSIDE
from runner.remote import OUTPUT_BYTES, Remote
from runner.seen import Status, seen_in
from runner.settle import Settler, read_done
from runner.ship import Shipper, scan_inside, scan_workdir

ASK_SECONDS = 30.0
# Importing torch for the first time reads a gigabyte from a cold disk.
LOOK_SECONDS = 300.0
WHO = 'echo "$HOME"; id -u; id -g'
# Secrets may lie in memory alone; a folder of that name may be a plain one on the disk.
SECRETS = """
set -eu
umask 077
while read -r _ where type _; do [ "$where $type" = "/dev/shm tmpfs" ] && found=yes; done </proc/mounts
[ -n "${found:-}" ] || { echo "/dev/shm is no tmpfs, and secrets are kept in memory alone" >&2; exit 1; }
rm -rf "$1"
mkdir "$1"
"""

Tell = Callable[[str], None]


class DockerEngine:
    """Runs attempts in containers on one host. All of it may be called from any thread."""

    capabilities = Capabilities(limits=True, images=True, gpu_choice=True)

    def __init__(self, remote: Remote, store_id: str, socket: str = ENGINE_SOCKET) -> None:
        self.host = remote.name
        self._remote, self._store_id = remote, store_id
        self._api = EngineApi(remote, socket)
        self._images = Images(self._api, self._ask_image)
        self._settler = Settler(self._api, remote, store_id, self._record_folder)
        self._lookout = Lookout(self._settler)
        self._lock = threading.Lock()
        self._known: tuple[Account, Shipper] | None = None

    def close(self) -> None:
        """Stop watching; the connection is not ours to close."""
        self._lookout.close()
        self._api.close()

    # Images

    def ensure_image(self, image: str, tell: Tell) -> None:
        """Have the image on the host: pulls it by its digest, telling how far it is; EngineError when it cannot be."""
        self._images.ensure(image, tell)

    def complaint(self, image: str, gpu: Gpu) -> str | None:
        """Say why the image cannot run on this GPU, or None. The image must be there. Asked once, then remembered."""
        return self._images.complaint(image, gpu)

    @property
    def images(self) -> Images:
        return self._images

    # Attempts

    def start(self, request: Request, secrets: Mapping[str, str]) -> None:
        name = self._name(request.paths)
        if request.paths.stop.exists():
            return
        try:
            found = self._api.inspect(name)
            if found is not None:
                self._refuse_stranger(found, request)
            if found is None:
                self._set_off(name, request, secrets, self._prepare(request))
            elif seen_in(found).status is Status.CREATED:
                # Left by a controller that was killed in between.
                self._set_off(name, request, secrets, None)
        finally:
            self._lookout.doubt(name, request.paths)

    def _prepare(self, request: Request) -> Place:
        """Have everything on the host that the container needs."""
        wanted, source = self._wanted(request), request.source
        account, shipper = self._host()
        self.ensure_image(wanted.image, lambda said: None)
        place = Place(account, self._store_id, shipper.ship(INSIDE, scan_inside(INSIDE)))
        tree = shipper.ship(source, scan_workdir(source, request.paths.folder.parents[3])) if source else place.inside
        paths, job, number = place.paths, request.job_id, request.attempt
        folders = (paths.record(job, number), paths.job(job, wanted.stay), self.checkpoint_folder(request))
        shipper.copy(tree, paths.work(job, number), *folders)
        return place

    def _wanted(self, request: Request) -> Container:
        if request.container is None:
            raise EngineError(f"{request.job_id} names no image, and {self.host} runs containers alone")
        return request.container

    def _set_off(self, name: str, request: Request, secrets: Mapping[str, str], place: Place | None) -> None:
        """Create a container where there is none yet, and start it; one that cannot be started is not left behind."""
        try:
            if request.secrets:
                self._put_secrets(request, secrets)
            if place is not None and not self._api.create(name, container_config(request, place)):
                raise HostUnreachable(f"{self.host}: another controller is starting {name}")
            self._api.start(name)
        except EngineError as error:
            if type(error) is EngineError:
                self._api.remove(name)
                self._settler.remove_secrets(request.paths)
            raise

    def _put_secrets(self, request: Request, secrets: Mapping[str, str]) -> None:
        """Write the secrets to a tmpfs of the host, for us alone; the wrapper inside takes and removes them."""
        folder = secrets_folder(self._store_id, request.job_id, request.attempt)
        self._script(SECRETS, folder)
        with self._remote.files() as files:
            for name in request.secrets:
                files.write(f"{folder}/{name}", [secrets[name].encode("utf-8", "surrogateescape")], 0o600)

    def _refuse_stranger(self, found: Mapping[str, Any], request: Request) -> None:
        borne = (found.get("Config") or {}).get("Labels") or {}
        ours = labels(self._store_id, request.job_id, request.attempt)
        if any(borne.get(key) != value for key, value in ours.items()):
            name = self._name(request.paths)
            raise EngineError(f"{self.host}: there is a container {name} which is not ours: remove or rename it")

    def observe(self, paths: AttemptPaths) -> Observation:
        done = read_done(paths)
        if done is not None:
            self._lookout.forget(paths)
            return done
        return self._lookout.word(self._name(paths), paths)

    def stop(self, paths: AttemptPaths, *, force: bool) -> None:
        name = self._name(paths)
        asked = paths.stop.exists()
        # Marked first: a start that is on its way finds the mark, or we find its container.
        paths.folder.mkdir(parents=True, exist_ok=True)
        paths.stop.touch()
        try:
            status = seen_in(self._api.inspect(name)).status
            if status is Status.CREATED:
                self._api.remove(name)
                self._settler.remove_secrets(paths)
            elif status is Status.RUNNING and (force or not asked):
                self._api.kill(name, "KILL" if force else "TERM")
        except EngineError:
            if not asked:
                paths.stop.unlink(missing_ok=True)
            raise
        finally:
            if force or not asked:
                self._lookout.doubt(name, paths)

    def read_log(self, paths: AttemptPaths, offset: int, size: int) -> bytes:
        try:
            with paths.log.open("rb") as log:
                log.seek(offset)
                return log.read(size)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise EngineError(f"{paths.log}: cannot be read: {error.strerror}") from None

    # What an attempt left

    def run(self, argv: Sequence[str], request: Request, timeout: float) -> tuple[int, str, str]:
        """Run a short command in a throw-away container of the attempt's image: nothing is written, nobody reached."""
        self.ensure_image(self._wanted(request).image, lambda said: None)
        account, shipper = self._host()
        self._script('mkdir -p "$1"', self._paths(account).job(request.job_id, self._wanted(request).stay))
        place = Place(account, self._store_id, shipper.ship(INSIDE, scan_inside(INSIDE)))
        return self._throw_away(look_config(request, place, tuple(argv)), timeout)

    def _throw_away(self, config: Mapping[str, Any], timeout: float) -> tuple[int, str, str]:
        name = f"rung-{self._store_id}-look-{random.token_hex(6)}"
        try:
            self._api.create(name, config)
            self._api.start(name)
            code = self._api.wait(name, timeout)
            output, errors = (self._api.output(name, errors=which, size=OUTPUT_BYTES) for which in (False, True))
        finally:
            self._api.remove(name)
        return code, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")

    def _ask_image(self, image: str, argv: tuple[str, ...]) -> tuple[int, str]:
        """Run a command in an image that belongs to no attempt."""
        account, _ = self._host()
        paths = AttemptPaths(INSIDE / "look" / "attempts" / "0")
        request = Request("look", 0, argv, INSIDE, {"HOME": "/tmp"}, paths, INSIDE, container=Container(image))  # noqa: S108
        config = look_config(request, Place(account, self._store_id, ""), argv)
        config["HostConfig"]["Mounts"] = []
        try:
            code, output, _ = self._throw_away(config, LOOK_SECONDS)
        except EngineError as error:
            if type(error) is not EngineError:
                raise
            # No such program in the image: the engine says so when it is started.
            return 127, ""
        return code, output

    def list_files(self, request: Request, pattern: str) -> list[FileEntry]:
        with self._remote.files() as files:
            found = files.entries(self.checkpoint_folder(request))
        names = {entry: entry.path.rpartition("/")[2] for entry in found if not entry.is_folder}
        return [
            FileEntry(name, entry.size, entry.written_at) for entry, name in names.items() if fnmatchcase(name, pattern)
        ]

    def checkpoint_folder(self, request: Request) -> str:
        """Return where the attempt's checkpoints lie on the host, as its files and commands know it."""
        return checkpoint_folder(request, self.account(), self._store_id)

    def gpu(self) -> Gpu | None:
        """Return the host's first GPU, as its driver names it."""
        ran = self._remote.run(GPU_QUERY, timeout=ASK_SECONDS)
        found, _ = parse_gpus(ran.out.decode("utf-8", "replace")) if ran.code == 0 else ((), ())
        return found[0] if found else None

    # The host

    def account(self) -> Account:
        """Return whom we are on the host; asked once."""
        return self._host()[0]

    def _host(self) -> tuple[Account, Shipper]:
        with self._lock:
            if self._known is None:
                account = self._who()
                self._known = account, Shipper(self._remote, self._paths(account))
            return self._known

    def _who(self) -> Account:
        said = self._script(WHO).split("\n")
        try:
            account = Account(said[0], int(said[1]), int(said[2]))
        except (IndexError, ValueError):
            raise EngineError(f"{self.host}: its shell does not say who we are there") from None
        if not account.home.startswith("/") or account.home == "/":
            raise EngineError(f"{self.host}: the account there has no home folder: {clean(account.home)!r}")
        if account.uid == 0:
            raise EngineError(
                f"{self.host}: we are root there, and a job is never run as root: log in with another account "
                "(ansible_user in the list of hosts) that may use the Docker Engine"
            )
        return account

    def _script(self, script: str, *words: str) -> str:
        ran = self._remote.run(["sh", "-c", script, "rung", *words], timeout=ASK_SECONDS)
        if ran.code != 0:
            said = (ran.err.decode("utf-8", "replace").strip().splitlines() or [f"exit code {ran.code}"])[-1]
            raise EngineError(f"{self.host}: {clean(said)[:500]}")
        return ran.out.decode("utf-8", "replace")

    def _paths(self, account: Account) -> HostPaths:
        return HostPaths(account.home, self._store_id)

    def _record_folder(self, paths: AttemptPaths) -> str:
        return self._paths(self.account()).record(paths.job_id, paths.number)

    def _name(self, paths: AttemptPaths) -> str:
        return container_name(self._store_id, paths.job_id, paths.number)
