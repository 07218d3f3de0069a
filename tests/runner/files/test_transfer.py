"""Tests that files are copied from and to a host completely, or not at all. Over a real sshd."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import EngineError
from rung.runner.checkpoints.mirror import keep_newest
from rung.runner.files import transfer
from rung.runner.files.fingerprint import local_entry
from rung.runner.files.transfer import fetch, local_checksum, local_checksums, remote_checksum, send
from rung.runner.seams.engine import FileEntry
from rung.runner.ssh.remote import SshRemote

NAMES = ["step_5.pt", 'it\'s $(reboot) `x` "q".pt', "-rf.pt"]


def written(folder: Path, name: str, data: bytes) -> FileEntry:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(data)
    os.utime(path, (1e9, 1e9))
    return FileEntry(name, len(data), 1e9)


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_has_the_same_fingerprint_after_a_round_trip(tmp_path: Path, titan: SshRemote, name: str) -> None:
    data = os.urandom(3 * transfer.CHUNK + 17)
    entry = written(tmp_path / "there", name, data)
    copy = fetch(titan, str(tmp_path / "there"), entry, tmp_path / "here")
    assert copy.read_bytes() == data
    assert FileEntry(copy.name, copy.stat().st_size, copy.stat().st_mtime).fingerprint == entry.fingerprint
    send(titan, copy, str(tmp_path / "new"))
    assert contents(tmp_path / "new") == {name: data}
    assert list((tmp_path / "here").iterdir()) == [copy]


def test_a_checkpoint_folder_has_the_same_fingerprint_after_a_round_trip(tmp_path: Path, titan: SshRemote) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    for name, data in (
        ("model.safetensors", os.urandom(9000)),
        ("deep/-x $(q).pt", b"abc"),
        ("trainer_state.json", b"{}"),
    ):
        (there / "checkpoint-5" / name).parent.mkdir(parents=True, exist_ok=True)
        written((there / "checkpoint-5" / name).parent, Path(name).name, data)
    entry = local_entry(there / "checkpoint-5", sampled=False)
    assert entry is not None
    assert (entry.size, entry.is_folder) == (9005, True)
    copy = fetch(titan, str(there), entry, here)
    known = local_entry(copy, sampled=False)
    assert known is not None and known.fingerprint == entry.fingerprint
    send(titan, copy, str(tmp_path / "new"))
    assert contents(tmp_path / "new" / "checkpoint-5") == contents(there / "checkpoint-5")
    assert set(local_checksums(copy)) == {f"checkpoint-5/{name}" for name in contents(there / "checkpoint-5")}
    keep_newest(copy)
    assert list(here.iterdir()) == [copy]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_two_newest_copies_are_kept(tmp_path: Path) -> None:
    for name in ("a.pt", "b.pt", "c.pt"):
        written(tmp_path / "here", name, b"x")
        keep_newest(tmp_path / "here" / name)
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["b.pt", "c.pt"]


class ChangesFiles:
    """The connection to a host on which every file changes just before its checksum is computed."""

    def __init__(self, remote: SshRemote) -> None:
        self.name, self.files, self._run = remote.name, remote.files, remote.run

    def run(self, argv: Sequence[str], *args: Any, **options: Any) -> Any:
        if argv[0] == "sha256sum":
            Path(argv[-1]).write_bytes(b"abX")
        return self._run(argv, *args, **options)


def test_a_file_that_changes_during_the_transfer_is_not_kept(tmp_path: Path, titan: SshRemote) -> None:
    entry = written(tmp_path / "there", "a.pt", b"abc")
    changing: Any = ChangesFiles(titan)
    with pytest.raises(EngineError, match="did not come through whole"):
        fetch(changing, str(tmp_path / "there"), entry, tmp_path / "here")
    assert list((tmp_path / "here").iterdir()) == []
    written(tmp_path / "out", "b.pt", b"abc")
    with pytest.raises(EngineError, match="did not come through whole"):
        send(changing, tmp_path / "out" / "b.pt", str(tmp_path / "new"))


def test_a_file_that_was_changed_since_it_was_listed_is_not_kept(tmp_path: Path, titan: SshRemote) -> None:
    entry = written(tmp_path / "there", "a.pt", b"abc")
    (tmp_path / "there" / "a.pt").write_bytes(b"abX")
    with pytest.raises(EngineError, match="was changed while it was copied"):
        fetch(titan, str(tmp_path / "there"), entry, tmp_path / "here")
    assert list((tmp_path / "here").iterdir()) == []


def test_a_missing_file_is_an_error_of_one_line(tmp_path: Path, titan: SshRemote) -> None:
    with pytest.raises(EngineError) as caught:
        fetch(titan, str(tmp_path), FileEntry("none.pt", 1, 1.0), tmp_path / "here")
    assert "none.pt" in str(caught.value) and "\n" not in str(caught.value)
    assert list((tmp_path / "here").iterdir()) == []


def test_the_checksum_here_and_on_the_host_are_the_same(tmp_path: Path, titan: SshRemote) -> None:
    written(tmp_path / "x", "a\\b.pt", b"abc")
    path = tmp_path / "x" / "a\\b.pt"
    assert remote_checksum(titan, str(path)) == local_checksum(path)


def test_no_more_is_taken_than_the_listing_said(tmp_path: Path, titan: SshRemote) -> None:
    entry = written(tmp_path / "there", "a.pt", b"x" * 1000)
    with pytest.raises(EngineError, match="did not come through whole"):
        fetch(titan, str(tmp_path / "there"), FileEntry(entry.name, 10, entry.written_at), tmp_path / "here")
    assert list((tmp_path / "here").iterdir()) == []


def test_a_folder_that_is_not_the_listed_one_is_not_taken(tmp_path: Path, titan: SshRemote) -> None:
    folder = tmp_path / "there" / "checkpoint-5"
    folder.mkdir(parents=True)
    written(folder, "a.pt", b"abc")
    entry = local_entry(folder, sampled=False)
    assert entry is not None
    written(folder, "b.pt", b"more")
    with pytest.raises(EngineError, match="was changed while it was copied"):
        fetch(titan, str(tmp_path / "there"), entry, tmp_path / "here")
    assert list((tmp_path / "here").iterdir()) == []


def test_a_copy_is_never_written_through_a_link(tmp_path: Path, titan: SshRemote) -> None:
    entry = written(tmp_path / "there", "a.pt", b"abc")
    (tmp_path / "here").mkdir()
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / "here" / ".a.pt.part").symlink_to(tmp_path / "precious")
    (tmp_path / "here" / "a.pt").symlink_to(tmp_path / "precious")
    assert fetch(titan, str(tmp_path / "there"), entry, tmp_path / "here").read_bytes() == b"abc"
    assert (tmp_path / "precious").read_bytes() == b"mine"
