"""Owns what an engine needs to know of its host besides the engine: who we are there, our folders, short scripts."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import AttemptPaths, HostPaths
from rung.jobs.model.terminal_text import clean
from rung.runner.engines.docker.container_config import HostLayout, RemoteUser, secrets_folder
from rung.runner.files.inside import INSIDE, scan_inside
from rung.runner.files.ship import Shipper
from rung.runner.seams.remote import Remote

ASK_SECONDS = 30.0
USER_SCRIPT = 'echo "$HOME"; id -u; id -g'
# Secrets may lie in memory alone; a folder of that name may be a plain one on the disk.
SECRETS_SCRIPT = """
set -eu
umask 077
while read -r _ where type _; do [ "$where $type" = "/dev/shm tmpfs" ] && found=yes; done </proc/mounts
[ -n "${found:-}" ] || { echo "/dev/shm is no tmpfs, and secrets are kept in memory alone" >&2; exit 1; }
rm -rf "$1"
mkdir "$1"
"""


class HostAccount:
    """Our side of one host, for one store. It may be asked from any thread."""

    def __init__(self, remote: Remote, store_id: str) -> None:
        self.remote, self.store_id, self.name = remote, store_id, remote.name
        self._lock = threading.Lock()
        self._known: tuple[RemoteUser, Shipper] | None = None

    def user(self) -> RemoteUser:
        """Return whom we are there; asked once."""
        return self._user_and_shipper()[0]

    def shipper(self) -> Shipper:
        return self._user_and_shipper()[1]

    def layout(self) -> HostLayout:
        """Return where attempts lie there; the code that runs inside is there then, too."""
        user, shipper = self._user_and_shipper()
        return HostLayout(user, self.store_id, shipper.ship(INSIDE, scan_inside(INSIDE)))

    def record_folder(self, paths: AttemptPaths) -> str:
        return HostPaths(self.user().home, self.store_id).record(paths.job_id, paths.number)

    def script(self, script: str, *words: str) -> str:
        """Run a short script and return what it prints."""
        ran = self.remote.run(["sh", "-c", script, "rung", *words], timeout=ASK_SECONDS)
        if ran.code != 0:
            said = (ran.err.decode("utf-8", "replace").strip().splitlines() or [f"exit code {ran.code}"])[-1]
            raise EngineError(f"{self.name}: {clean(said)[:500]}")
        return ran.out.decode("utf-8", "replace")

    def put_secrets(self, paths: AttemptPaths, secrets: Mapping[str, str]) -> None:
        """Write secrets to the host's memory, for us alone; the wrapper inside takes and removes them."""
        folder = secrets_folder(self.store_id, paths.job_id, paths.number)
        self.script(SECRETS_SCRIPT, folder)
        with self.remote.files() as files:
            for name, value in secrets.items():
                files.write(f"{folder}/{name}", [value.encode("utf-8", "surrogateescape")], 0o600)

    def _user_and_shipper(self) -> tuple[RemoteUser, Shipper]:
        with self._lock:
            if self._known is None:
                user = self._ask_user()
                self._known = user, Shipper(self.remote, HostPaths(user.home, self.store_id))
            return self._known

    def _ask_user(self) -> RemoteUser:
        said = self.script(USER_SCRIPT).split("\n")
        try:
            home, uid, gid = said[0], int(said[1]), int(said[2])
        except (IndexError, ValueError):
            raise EngineError(f"{self.name}: its shell does not say who we are there") from None
        if not home.startswith("/") or home == "/":
            raise EngineError(f"{self.name}: the account there has no home folder: {clean(home)!r}")
        if uid == 0:
            raise EngineError(
                f"{self.name}: we are root there, and a job is never run as root: log in with another account "
                "(ansible_user in the list of hosts) that may use the Docker Engine"
            )
        return RemoteUser(home, uid, gid)
