"""Knows our account on a host: the user, our folders, the shipper; runs short scripts there."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping

from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import AttemptPaths, HostPaths
from rung.jobs.model.terminal_text import clean
from rung.runner.engines.on_host.layout import HostLayout, RemoteUser
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


class HostAccount:
    """Our account on one host, for one store. Its methods may be called from any thread."""

    def __init__(
        self,
        remote: Remote,
        store_id: str,
        program_folders: tuple[str, ...] = (),
        why_no_root: str = "",
        folder: Callable[[str], str] = lambda home: "",
    ) -> None:
        """`program_folders`: where the host's own programs may be. `why_no_root`: root is refused, and why.

        `folder` returns our folder there for a home, if it is not the usual one.
        """
        self.remote, self.store_id, self.name = remote, store_id, remote.name
        self._program_folders, self._why_no_root, self._folder = program_folders, why_no_root, folder
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
        inside = shipper.ship(INSIDE, scan_inside(INSIDE))
        return HostLayout(user, self.store_id, inside, self._folder(user.home))

    def record_folder(self, paths: AttemptPaths) -> str:
        return self.paths().record(paths.job_id, paths.number, paths.node)

    def paths(self) -> HostPaths:
        return self._paths_of(self.user())

    def _paths_of(self, user: RemoteUser) -> HostPaths:
        return HostPaths(user.home, self.store_id, self._folder(user.home))

    def script(self, script: str, *arguments: str) -> str:
        """Run a short script and return its output."""
        ran = self.remote.run(["sh", "-c", script, "rung", *arguments], timeout=ASK_SECONDS)
        if ran.code != 0:
            message = (ran.err.decode("utf-8", "replace").strip().splitlines() or [f"exit code {ran.code}"])[-1]
            raise EngineError(f"{self.name}: {clean(message)[:500]}")
        return ran.out.decode("utf-8", "replace")

    def put_secrets(self, script: str, folder: str, secrets: Mapping[str, str]) -> None:
        """Write secrets into a folder that a script makes; the wrapper of the attempt reads and removes them."""
        self.script(script, folder)
        with self.remote.files() as files:
            for name, value in secrets.items():
                files.write(f"{folder}/{name}", [value.encode("utf-8", "surrogateescape")], 0o600)

    def _user_and_shipper(self) -> tuple[RemoteUser, Shipper]:
        with self._lock:
            if self._known is None:
                user = self._ask_user()
                self._known = user, Shipper(self.remote, self._paths_of(user))
            return self._known

    def _ask_user(self) -> RemoteUser:
        lines = self.script(USER_SCRIPT, *self._program_folders).split("\n")
        try:
            home, uid, gid = lines[0], int(lines[1]), int(lines[2])
        except (IndexError, ValueError):
            raise EngineError(f"{self.name}: its shell does not report our user and home there") from None
        if not home.startswith("/") or home == "/":
            raise EngineError(f"{self.name}: the account there has no home folder: {clean(home)!r}")
        if uid == 0 and self._why_no_root:
            raise EngineError(f"{self.name}: we are root there, {self._why_no_root}")
        memory, machine, *folders = [*lines[3:], "", ""]
        known = tuple(folder for folder in self._program_folders if folder in folders)
        return RemoteUser(home, uid, gid, int(memory) << 10 if MEMORY.fullmatch(memory) else 0, machine, known)
