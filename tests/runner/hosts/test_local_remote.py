"""Tests this machine as a login node: commands and files behave as they do over a connection."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rung.jobs.model.errors import EngineError
from rung.runner.hosts.local_remote import LocalRemote


@pytest.fixture
def remote(tmp_path: Path) -> LocalRemote:
    return LocalRemote("lab", {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "WORD": "two words"})


def test_a_command_gets_its_arguments_its_input_and_only_the_given_variables(remote: LocalRemote) -> None:
    ran = remote.run(
        ["sh", "-c", 'cat; printf "%s|%s" "$1" "$WORD"; env | wc -l; exit 3', "sh", "a b"], b"in ", timeout=30
    )
    assert (ran.code, ran.out.split(b"|")[0], ran.err) == (3, b"in a b", b"")
    assert ran.out.split(b"|")[1].startswith(b"two words")


def test_it_begins_in_the_home_and_has_no_input_of_ours(remote: LocalRemote, tmp_path: Path) -> None:
    ran = remote.run(["sh", "-c", "pwd; cat"], timeout=30)
    assert ran.out == f"{tmp_path}\n".encode()


def test_a_program_that_is_missing_and_one_that_a_signal_ends_are_answers(remote: LocalRemote) -> None:
    assert remote.run(["no-such-program"], timeout=30).code == 127
    assert remote.run(["sh", "-c", "kill -9 $$"], timeout=30).code == -1


def test_a_command_that_takes_too_long_or_has_a_nul_is_an_error_that_names_it(remote: LocalRemote) -> None:
    with pytest.raises(EngineError, match="lab: sleep could not be run"):
        remote.run(["sleep", "60"], timeout=0.1)
    with pytest.raises(EngineError, match="NUL"):
        remote.run(["echo", "a\0b"], timeout=30)


def test_files_are_written_whole_read_in_parts_and_listed(remote: LocalRemote, tmp_path: Path) -> None:
    with remote.files() as files:
        files.make_folder(f"{tmp_path}/a/b")
        files.write(f"{tmp_path}/a/b/file", [b"0123", b"456"], 0o600)
        assert files.read(f"{tmp_path}/a/b/file", 2, 3) == b"234"
        assert files.read(f"{tmp_path}/a/b/file", 5, 100) == b"56"
        (listed,) = files.entries(f"{tmp_path}/a/b")
        assert (listed.path, listed.size, listed.is_folder, listed.mode) == (f"{tmp_path}/a/b/file", 7, False, 0o600)
        assert files.entries(f"{tmp_path}/none") == [] and files.stat(f"{tmp_path}/none") is None
        assert (found := files.stat(f"{tmp_path}/a")) is not None and found.is_folder


def test_a_write_that_fails_leaves_nothing(remote: LocalRemote, tmp_path: Path) -> None:
    def broken() -> object:
        yield b"some"
        raise KeyboardInterrupt

    with remote.files() as files, pytest.raises(KeyboardInterrupt):
        files.write(f"{tmp_path}/file", broken(), 0o600)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    with remote.files() as files, pytest.raises(EngineError, match="No such file"):
        files.write(f"{tmp_path}/none/file", [b"x"], 0o600)
