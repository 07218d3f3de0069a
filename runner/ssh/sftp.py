"""Reads and writes the files of a host over SFTP, in one session. Files are written atomically."""

from __future__ import annotations

import posixpath
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from stat import S_ISDIR

import paramiko

from rung.jobs.model.errors import EngineError
from rung.runner.seams.remote import RemoteFile, file_name
from rung.runner.ssh.sessions import OPEN_SECONDS, request

# One request batch, of 32 KiB each; larger slices are slower in paramiko, not faster.
SLICE_BYTES = 1 << 20
# A folder of ours has far fewer; a host that lists more lies.
MOST_ENTRIES = 20_000
# A disk that takes longer hangs.
ANSWER_SECONDS = 60.0


class SftpFiles:
    """The Files of one session. It serves one thread; `translated_errors` turns exceptions into ours."""

    def __init__(
        self, channel: paramiko.Channel, translated_errors: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._translated_errors = translated_errors
        with translated_errors():
            request(channel, "subsystem", b"sftp", time.monotonic() + OPEN_SECONDS)
            channel.settimeout(ANSWER_SECONDS)
            self._sftp = paramiko.SFTPClient(channel)

    def read(self, path: str, offset: int, size: int) -> bytes:
        with self._translated_errors(), self._sftp.open(path, "rb") as file:
            end = min(offset + size, file.stat().st_size or 0)
            slices = ((at, min(SLICE_BYTES, end - at)) for at in range(offset, end, SLICE_BYTES))
            return b"".join(b"".join(file.readv([part])) for part in slices)

    def write(self, path: str, chunks: Iterable[bytes], mode: int) -> None:
        draft = f"{path}.{secrets.token_hex(4)}.part"
        try:
            written = self._write(draft, chunks, mode)
            with self._translated_errors():
                there = self._sftp.stat(draft).st_size
                # Answers to pipelined writes come late, and errors among them may be lost.
                if there != written:
                    raise EngineError(f"{path}: {there} of {written} bytes could be written; is the disk full?")
                self._sftp.posix_rename(draft, path)
        except BaseException:
            with suppress(OSError, EOFError, paramiko.SSHException):
                self._sftp.remove(draft)
            raise

    def _write(self, draft: str, chunks: Iterable[bytes], mode: int) -> int:
        written = 0
        with self._translated_errors():
            file = self._sftp.open(draft, "wx")
            # Before it has any content.
            file.chmod(mode)
            file.set_pipelined(True)
        for chunk in chunks:
            with self._translated_errors():
                file.write(chunk)
            written += len(chunk)
        with self._translated_errors():
            file.close()
        return written

    def entries(self, folder: str) -> list[RemoteFile]:
        found: list[RemoteFile] = []
        with self._translated_errors(), suppress(FileNotFoundError):
            for each in self._sftp.listdir_iter(folder, read_aheads=1):
                found.append(_file(posixpath.join(folder, file_name(each.filename)), each))
                if len(found) > MOST_ENTRIES:
                    raise EngineError(f"{folder} has more than {MOST_ENTRIES} entries")
        return found

    def stat(self, path: str) -> RemoteFile | None:
        with self._translated_errors(), suppress(FileNotFoundError):
            return _file(path, self._sftp.stat(path))
        return None

    def make_folder(self, path: str) -> None:
        there = self.stat(path)
        if there is None:
            parent = posixpath.dirname(path.rstrip("/"))
            if parent not in ("", "/"):
                self.make_folder(parent)
            # Somebody else may have made it in between; the stat below finds it.
            with self._translated_errors(), suppress(OSError):
                self._sftp.mkdir(path)
            there = self.stat(path)
        if there is None or not there.is_folder:
            raise EngineError(f"{path}: is not a folder and cannot be made one")


def _file(path: str, found: paramiko.SFTPAttributes) -> RemoteFile:
    mode = found.st_mode or 0
    return RemoteFile(path, found.st_size or 0, float(found.st_mtime or 0), S_ISDIR(mode), mode & 0o7777)
