"""Treats this machine as a host: for a cluster whose login node it is. Commands and files are the user's own."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR

from rung.jobs.model.errors import EngineError
from rung.runner.seams.remote import (
    OUTPUT_BYTES,
    CommandResult,
    Files,
    RemoteFile,
    RemoteSocket,
    command_line,
    file_name,
)


class LocalRemote:
    """This machine behind the interface of a host (Remote). Its methods may be called from any thread."""

    def __init__(self, name: str, environ: Mapping[str, str]) -> None:
        self.name, self._environ = name, dict(environ)

    def run(self, argv: Sequence[str], stdin: bytes | None = None, *, timeout: float) -> CommandResult:
        command_line(argv)  # the same commands are refused as on any host
        try:
            done = subprocess.run(
                list(argv),
                input=stdin if stdin is not None else b"",
                env=self._environ,
                cwd=self._environ.get("HOME") or "/",
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        except FileNotFoundError:
            return CommandResult(127, b"", f"{argv[0]}: not found".encode())
        except (OSError, subprocess.SubprocessError) as error:
            raise EngineError(f"{self.name}: {argv[0]} could not be run: {error}") from None
        code = done.returncode if done.returncode >= 0 else -1
        return CommandResult(code, done.stdout[:OUTPUT_BYTES], done.stderr[:OUTPUT_BYTES])

    def open_socket(self, path: str) -> RemoteSocket:
        raise EngineError(f"{self.name}: this machine is used as a login node, and has no engine to connect to: {path}")

    @contextmanager
    def files(self) -> Iterator[Files]:
        yield LocalFiles()

    def drop_connection(self) -> None:
        """Do nothing: there is no connection."""

    def close(self) -> None:
        """Do nothing: there is no connection."""


class LocalFiles:
    """The files of this machine (Files)."""

    def read(self, path: str, offset: int, size: int) -> bytes:
        with _naming(path), Path(path).open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def write(self, path: str, chunks: Iterable[bytes], mode: int) -> None:
        draft = Path(f"{path}.{secrets.token_hex(4)}.part")
        try:
            with _naming(path):
                with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                    file.writelines(chunks)
                draft.rename(path)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise

    def entries(self, folder: str) -> list[RemoteFile]:
        with _naming(folder), suppress(FileNotFoundError):
            return [_file(str(path), path.stat()) for path in Path(folder).iterdir() if file_name(path.name)]
        return []

    def stat(self, path: str) -> RemoteFile | None:
        with _naming(path), suppress(FileNotFoundError):
            return _file(path, Path(path).stat())
        return None

    def make_folder(self, path: str) -> None:
        with _naming(path):
            Path(path).mkdir(parents=True, exist_ok=True)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Turn an error of the disk into one that names the path."""
    try:
        yield
    except OSError as error:
        raise EngineError(f"{path}: {error.strerror}") from None


def _file(path: str, found: os.stat_result) -> RemoteFile:
    # As over SFTP, times are whole seconds.
    return RemoteFile(path, found.st_size, float(int(found.st_mtime)), S_ISDIR(found.st_mode), found.st_mode & 0o7777)
