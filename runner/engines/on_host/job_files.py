"""Lists, moves, fetches and delivers the checkpoints of a job on a host.

A job can write anything into its folder, so Rung never opens a path in it: a script on the host does
(jobs/inside/files.sh), and each engine has its own way to run it. All paths are those of a container that sees the
folder of the job alone. Over SFTP Rung reads and writes only in folders that no job can write.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from rung.jobs.model.errors import EngineError, HostError
from rung.jobs.model.paths import IN_FILES, residence_in_files, set_aside_in_files
from rung.jobs.model.terminal_text import clean
from rung.runner.engines.on_host.host_account import HostAccount
from rung.runner.engines.on_host.layout import path_in_files
from rung.runner.files.fingerprint import MOST_FILES, folder_entry, is_hidden
from rung.runner.files.own_folder import plain_path
from rung.runner.files.transfer import fetch, local_checksums, send
from rung.runner.seams.engine import FileEntry, Request
from rung.runner.seams.remote import file_name
from rung.runner.seams.storage import DiskUse, FoundFile, OnBytes

# Runs files.sh with arguments, which may write or not, for so many seconds: exit code, output, errors.
RunScript = Callable[[Request, Sequence[str], bool, float], tuple[int, str, str]]
# A job may have closed folders of its checkpoint to everybody.
REMOVE_SCRIPT = 'find "$1" -type d -exec chmod u+rwx {} + 2>/dev/null; rm -rf -- "$1"'
# A disk under load takes a while to list and to move. Linking a checkpoint takes a moment; copying it from a volume, or
# reading it for its checksum, may take minutes.
SHORT_SECONDS = 120.0
LONG_SECONDS = 900.0
# Enough for the most files that a checkpoint may have, with long paths.
LISTING_BYTES = 4 << 20
# The last line of a listing.
COMPLETE = "complete\n"
MOST_PATH = 4096
# Of a folder with more entries the newest count: the search for a checkpoint begins with those.
MOST_ENTRIES = 20_000
# No size that a filesystem reports is larger, and no time: the year 9999.
MOST_SIZE, MOST_TIME = 1 << 60, 253402300799
# The arguments of a command have to fit.
MOVED_AT_ONCE = 1000
# Paths are longer than names.
PATHS_AT_ONCE = 200
# All that Rung puts into the folder of a job.
IN_JOB_ROOT = ("attempts", "stays", "set-aside", "incoming", "outgoing")
REMOVE_ROOT_SCRIPT = 'if [ -d "$1" ]; then rmdir -- "$1"; fi'


class JobFiles:
    """The checkpoints of jobs of one store on one host."""

    def __init__(self, account: HostAccount, run_script: RunScript) -> None:
        self._account, self._run_script, self._remote = account, run_script, account.remote

    def list(self, request: Request, pattern: str) -> list[FileEntry]:
        """Return the entries of the attempt's checkpoint folder that match; none that are hidden."""
        listed = self._run(request, "list", path_in_files(request), pattern)
        if not listed.endswith(COMPLETE):
            # A part of it could be taken for all there is.
            raise EngineError(f"{self._remote.name}: {request.checkpoint_dir} has more files than Rung lists")
        return parse_listing(listed.removesuffix(COMPLETE), pattern)

    def move(self, request: Request, names: Sequence[str], aside: Path) -> None:
        """Move these checkpoints into another folder of the job; names that are gone are ignored."""
        for first in range(0, len(names), MOVED_AT_ONCE):
            some = names[first : first + MOVED_AT_ONCE]
            self._run(request, "move", path_in_files(request), str(aside), *some, writable=True)

    def fetch(self, request: Request, entry: FileEntry, to: Path) -> Path:
        """Copy a checkpoint into a folder here. It is offered first where the job cannot change what it is."""
        place = f"outgoing/{secrets.token_hex(8)}"
        arguments = (path_in_files(request), entry.name, f"{IN_FILES}/{place}", str(entry.size))
        try:
            self._run(request, "offer", *arguments, writable=True, seconds=LONG_SECONDS)
            return fetch(self._remote, f"{self._root(request)}/{place}", entry, to)
        finally:
            self._remove(f"{self._root(request)}/{place}")

    def copy(self, source: Request, request: Request, name: str, new_name: str) -> None:
        """Copy a checkpoint of a residence of the job into the attempt's checkpoint folder."""
        arguments = (path_in_files(source), file_name(name), path_in_files(request), file_name(new_name))
        self._run(request, "copy", *arguments, writable=True, seconds=LONG_SECONDS)

    def remove_residence(self, request: Request, residence: int) -> None:
        """Remove the folder of a residence of the job, if it is there."""
        self._run(request, "remove", residence_in_files(residence), writable=True, seconds=LONG_SECONDS)

    def deliver(self, request: Request, file: Path) -> None:
        """Copy a checkpoint from here into the attempt's checkpoint folder, if it is not there already."""
        folder = path_in_files(request)
        there = parse_checksums(self._run(request, "sums", folder, file.name, seconds=LONG_SECONDS))
        if there == local_checksums(file):
            return
        place = f"incoming/{secrets.token_hex(8)}"
        try:
            send(self._remote, file, f"{self._root(request)}/{place}")
            # An earlier attempt may have left an incomplete one; it is kept.
            residence = request.container.residence if request.container else 1
            replaced = f"{set_aside_in_files(residence, request.attempt)}-replaced"
            self._run(request, "place", f"{IN_FILES}/{place}", folder, file.name, replaced, writable=True)
        finally:
            self._remove(f"{self._root(request)}/{place}")

    # What a person measures, removes and fetches

    def disk_use(self, request: Request, paths: Sequence[str]) -> dict[str, DiskUse]:
        """Return what paths in the folder of the job take. All are asked about at once, for hard links count once."""
        asked = [_in_files(path) for path in paths]
        printed = self._run(request, "sizes", *asked, seconds=LONG_SECONDS) if asked else COMPLETE
        sizes = parse_sizes(self._whole(request, printed))
        return {path: sizes[name] for path, name in zip(paths, asked, strict=True) if name in sizes}

    def remove(self, request: Request, paths: Sequence[str]) -> None:
        for some in _portions([_in_files(path) for path in paths]):
            self._run(request, "remove", *some, writable=True, seconds=LONG_SECONDS)

    def remove_all(self, request: Request) -> None:
        self.remove(request, IN_JOB_ROOT)
        self._account.script(REMOVE_ROOT_SCRIPT, self._root(request))

    def files(self, request: Request, folder: str, pattern: str) -> Sequence[FoundFile]:
        printed = self._run(request, "files", folder, pattern, seconds=LONG_SECONDS)
        found = (_parse_line(line) for line in self._whole(request, printed).split("\n"))
        return [FoundFile(path, size, at) for path, mode, size, at in filter(None, found) if S_ISREG(mode)]

    def fetch_files(
        self, request: Request, folder: str, files: Sequence[FoundFile], to: Path, on_bytes: OnBytes
    ) -> Path:
        """Copy many files here as one folder. They are gathered first where the job cannot change what they are."""
        name = secrets.token_hex(8)
        gathered = folder_entry(name, [(each.path, each.size, each.written_at) for each in files], 0.0)
        arguments = (folder, f"{IN_FILES}/outgoing/{name}", str(gathered.size))
        try:
            for some in _portions([str(plain_path(each.path)) for each in files]):
                self._run(request, "gather", *arguments, *some, writable=True, seconds=LONG_SECONDS)
            return fetch(self._remote, f"{self._root(request)}/outgoing", gathered, to, on_bytes)
        finally:
            self._remove(f"{self._root(request)}/outgoing/{name}")

    def _whole(self, request: Request, printed: str) -> str:
        if not printed.endswith(COMPLETE):
            raise EngineError(f"{self._remote.name}: {request.job_id} has more files there than Rung lists")
        return printed.removesuffix(COMPLETE)

    def _root(self, request: Request) -> str:
        return self._account.paths().job_root(request.job_id)

    def _remove(self, folder: str) -> None:
        with suppress(EngineError, HostError):
            self._account.script(REMOVE_SCRIPT, folder)

    def _run(self, request: Request, *arguments: str, writable: bool = False, seconds: float = SHORT_SECONDS) -> str:
        self._account.script('umask 077; mkdir -p "$1"', self._root(request))
        code, output, errors = self._run_script(request, arguments, writable, seconds)
        if code != 0:
            why = clean(errors.strip()[-200:]) or f"exit code {code}"
            raise EngineError(f"{self._remote.name}: the files of {request.job_id} there: {why}")
        return output


def parse_listing(text: str, pattern: str) -> list[FileEntry]:
    """Return the entries of a listing: its top entries that match, and folders with what is in them. Pure."""
    top: dict[str, tuple[int, int, float]] = {}
    inner: dict[str, list[tuple[str, int, float]]] = {}
    for line in text.split("\n"):
        found = _parse_line(line)
        if found is None:
            continue
        path, mode, size, written_at = found
        name, _, rest = path.partition("/")
        if is_hidden(name) or not fnmatchcase(name, pattern):
            continue
        if rest:
            inner.setdefault(name, []).append((rest, size, written_at))
        else:
            top[name] = (mode, size, written_at)
    newest_first = sorted(top.items(), key=lambda each: -each[1][2])
    listed = [(name, facts) for name, facts in newest_first if _is_listed(facts[0])]
    return [_entry(name, *facts, inner.get(name, [])) for name, facts in listed[:MOST_ENTRIES]]


def _is_listed(mode: int) -> bool:
    """Tell whether an entry can be a checkpoint: a pipe or a socket cannot."""
    return S_ISREG(mode) or S_ISDIR(mode)


def _entry(name: str, mode: int, size: int, written_at: float, inner: Sequence[tuple[str, int, float]]) -> FileEntry:
    if S_ISDIR(mode):
        return folder_entry(name, inner[:MOST_FILES], written_at)
    return FileEntry(name, size, written_at)


def _parse_line(line: str) -> tuple[str, int, int, float] | None:
    """Return the path, mode, size and time of a line; None for one that no listing has."""
    fields = line.split(" ", 3)
    if len(fields) < 4 or not fields[3].startswith("./") or len(fields[3]) > MOST_PATH:
        return None
    path = fields[3].removeprefix("./")
    try:
        for name in path.split("/"):
            file_name(name)
        mode, size, written_at = int(fields[0], 16), int(fields[1]), float(int(fields[2]))
    except (ValueError, OverflowError, EngineError):
        return None
    return (path, mode, size, written_at) if 0 <= size <= MOST_SIZE and abs(written_at) <= MOST_TIME else None


def parse_checksums(text: str) -> dict[str, str]:
    """Return the checksums that the script printed, by path. Pure."""
    pairs = (line.split("  ./", 1) for line in text.split("\n"))
    return {pair[1]: pair[0] for pair in pairs if len(pair) == 2}


def parse_sizes(text: str) -> dict[str, DiskUse]:
    """Return what each path takes: a later line about the same path holds. Pure."""
    lines = text.split("\n")
    pairs = (line.split("\t", 1) for line in lines)
    sizes = {pair[1]: int(pair[0]) for pair in pairs if len(pair) == 2 and pair[0].isdecimal() and len(pair[0]) < 16}
    return {path: DiskUse(size << 10, "incomplete" not in lines) for path, size in sizes.items()}


def _in_files(path: str) -> str:
    """Return a path below the folder of the job, or that folder, as the container sees it."""
    return IN_FILES if path == "." else f"{IN_FILES}/{plain_path(path)}"


def _portions(arguments: Sequence[str]) -> list[Sequence[str]]:
    return [arguments[first : first + PATHS_AT_ONCE] for first in range(0, len(arguments), PATHS_AT_ONCE)]


class HostStorage:
    """The files of one job on one host (Storage of seams/storage.py)."""

    def __init__(self, files: JobFiles, request: Request, resolve: Callable[[Request], Request], where: str) -> None:
        """`resolve` returns the request with the volumes as they are on the host; it raises where one is not there."""
        self._files, self._request, self._resolve, self.where = files, request, resolve, where
        # Nothing in a volume is measured or removed, so no container for that sees any.
        self._own = replace(request, checkpoint_dir=Path(IN_FILES))

    def disk_use(self, paths: Sequence[str]) -> dict[str, DiskUse]:
        return self._files.disk_use(self._own, paths)

    def remove(self, paths: Sequence[str]) -> None:
        self._files.remove(self._own, paths)

    def remove_all(self) -> None:
        self._files.remove_all(self._own)

    def files(self, folder: str, pattern: str) -> list[FoundFile]:
        return list(self._files.files(self._resolve(self._request), self._place(folder), pattern))

    def fetch(self, folder: str, files: Sequence[FoundFile], to: Path, on_bytes: OnBytes) -> Path:
        return self._files.fetch_files(self._resolve(self._request), self._place(folder), files, to, on_bytes)

    def _place(self, folder: str) -> str:
        return folder if folder.startswith("/") else _in_files(folder)
