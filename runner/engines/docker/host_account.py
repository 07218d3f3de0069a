"""Knows our account on a host: the user, our folders, the shipper; runs short scripts there."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping

from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import AttemptPaths, HostPaths
from rung.jobs.model.terminal_text import clean
from rung.runner.engines.docker.container_config import HostLayout, RemoteUser, secrets_folder
from rung.runner.engines.docker.empty_image import PROGRAM_FOLDERS
from rung.runner.files.inside import INSIDE, scan_inside
from rung.runner.files.ship import Shipper
from rung.runner.seams.remote import Remote

ASK_SECONDS = 30.0
USER_SCRIPT = """
echo "$HOME"; id -u; id -g
while read -r name size _; do if [ "$name" = MemTotal: ]; then echo "$size"; fi; done </proc/meminfo
uname -m
for folder; do if [ -d "$folder" ]; then echo "$folder"; fi; done
"""
# In KiB, as Linux counts it.
MEMORY = re.compile(r"[0-9]{1,15}")
# Secrets are kept only in memory, and /dev/shm could be a plain folder on the disk.
SECRETS_SCRIPT = """
set -eu
umask 077
while read -r _ where type _; do [ "$where $type" = "/dev/shm tmpfs" ] && found=yes; done </proc/mounts
[ -n "${found:-}" ] || { echo "/dev/shm is no tmpfs, and secrets are kept in memory alone" >&2; exit 1; }
rm -rf "$1"
mkdir "$1"
"""


class HostAccount:
    """Our account on one host, for one store. Its methods may be called from any thread."""

    def __init__(self, remote: Remote, store_id: str) -> None:
        self.remote, self.store_id, self.name = remote, store_id, remote.name
        self._lock = threading.Lock()
        self._known: tuple[RemoteUser, Shipper] | None = None

    def user(self) -> RemoteUser:
        """Return our user there; the host is asked once."""
        return self._user_and_shipper()[0]

    def shipper(self) -> Shipper:
        return self._user_and_shipper()[1]

    def layout(self) -> HostLayout:
        """Return where attempts are there; ships the code that runs inside, if it is missing."""
        user, shipper = self._user_and_shipper()
        return HostLayout(user, self.store_id, shipper.ship(INSIDE, scan_inside(INSIDE)))

    def record_folder(self, paths: AttemptPaths) -> str:
        return HostPaths(self.user().home, self.store_id).record(paths.job_id, paths.number)

    def script(self, script: str, *arguments: str) -> str:
        """Run a short script and return its output."""
        ran = self.remote.run(["sh", "-c", script, "rung", *arguments], timeout=ASK_SECONDS)
        if ran.code != 0:
            message = (ran.err.decode("utf-8", "replace").strip().splitlines() or [f"exit code {ran.code}"])[-1]
            raise EngineError(f"{self.name}: {clean(message)[:500]}")
        return ran.out.decode("utf-8", "replace")

    def put_secrets(self, paths: AttemptPaths, secrets: Mapping[str, str]) -> None:
        """Write secrets to the host's memory, readable only by us; the wrapper inside reads and removes them."""
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
        lines = self.script(USER_SCRIPT, *PROGRAM_FOLDERS).split("\n")
        try:
            home, uid, gid = lines[0], int(lines[1]), int(lines[2])
        except (IndexError, ValueError):
            raise EngineError(f"{self.name}: its shell does not report our user and home there") from None
        if not home.startswith("/") or home == "/":
            raise EngineError(f"{self.name}: the account there has no home folder: {clean(home)!r}")
        if uid == 0:
            raise EngineError(
                f"{self.name}: we are root there, and a job is never run as root: log in with another account "
                "(ansible_user in the list of hosts) that may use the Docker Engine"
            )
        memory, machine, *folders = [*lines[3:], "", ""]
        known = tuple(folder for folder in PROGRAM_FOLDERS if folder in folders)
        return RemoteUser(home, uid, gid, int(memory) << 10 if MEMORY.fullmatch(memory) else 0, machine, known)
