"""Owns the proof that a file comes from a host and goes to one whole, or not at all. Over a real sshd."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.errors import EngineError
from runner import moving
from runner.engine import FileEntry
from runner.moving import checksum_here, checksum_on, deliver, fetch
from runner.ssh import SshRemote

NAMES = ["step_5.pt", 'it\'s $(reboot) `x` "q".pt', "-rf.pt"]


def written(folder: Path, name: str, data: bytes) -> FileEntry:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(data)
    os.utime(path, (1e9, 1e9))
    return FileEntry(name, len(data), 1e9)


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_goes_there_and_back_and_is_known_again(tmp_path: Path, titan: SshRemote, name: str) -> None:
    data = os.urandom(3 * moving.CHUNK + 17)
    entry = written(tmp_path / "there", name, data)
    copy = fetch(titan, str(tmp_path / "there"), entry, tmp_path / "here")
    assert copy.read_bytes() == data
    assert FileEntry(copy.name, copy.stat().st_size, copy.stat().st_mtime).fingerprint == entry.fingerprint
    deliver(titan, copy, str(tmp_path / "new"))
    assert (tmp_path / "new" / name).read_bytes() == data
    assert [path.name for path in (tmp_path / "new").iterdir() if path.is_file()] == [name]
    assert list((tmp_path / "here").iterdir()) == [copy]


def test_what_is_there_already_is_not_sent_again(tmp_path: Path, titan: SshRemote) -> None:
    written(tmp_path / "here", "a.pt", b"abc")
    deliver(titan, tmp_path / "here" / "a.pt", str(tmp_path / "there"))
    before = (tmp_path / "there" / "a.pt").stat().st_ino
    deliver(titan, tmp_path / "here" / "a.pt", str(tmp_path / "there"))
    assert (tmp_path / "there" / "a.pt").stat().st_ino == before
    (tmp_path / "there" / "a.pt").write_bytes(b"abX")
    deliver(titan, tmp_path / "here" / "a.pt", str(tmp_path / "there"))
    assert (tmp_path / "there" / "a.pt").read_bytes() == b"abc"


def test_a_file_that_changes_on_the_way_gets_no_name(
    tmp_path: Path, titan: SshRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = written(tmp_path / "there", "a.pt", b"abc")
    sum_on = checksum_on

    def changed(remote: SshRemote, path: str) -> str:
        Path(path).write_bytes(b"abX")
        return sum_on(remote, path)

    monkeypatch.setattr(moving, "checksum_on", changed)
    with pytest.raises(EngineError, match="did not come through whole"):
        fetch(titan, str(tmp_path / "there"), entry, tmp_path / "here")
    assert list((tmp_path / "here").iterdir()) == []
    written(tmp_path / "out", "b.pt", b"abc")
    with pytest.raises(EngineError, match="did not come through whole"):
        deliver(titan, tmp_path / "out" / "b.pt", str(tmp_path / "new"))
    assert not (tmp_path / "new" / "b.pt").exists()


def test_a_file_that_is_gone_is_an_error_of_one_line(tmp_path: Path, titan: SshRemote) -> None:
    with pytest.raises(EngineError) as caught:
        fetch(titan, str(tmp_path), FileEntry("none.pt", 1, 1.0), tmp_path / "here")
    assert "none.pt" in str(caught.value) and "\n" not in str(caught.value)
    assert list((tmp_path / "here").iterdir()) == []


def test_both_sides_sum_alike(tmp_path: Path, titan: SshRemote) -> None:
    written(tmp_path / "x", "a\\b.pt", b"abc")
    path = tmp_path / "x" / "a\\b.pt"
    assert checksum_on(titan, str(path)) == checksum_here(path)
