"""Tests shipping to a real host: the same content is sent once, only changes are sent, completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from rung.jobs.model.errors import EngineError
from rung.runner.ssh.sftp import SftpFiles
from tests.fleet.containers.conftest import STORE, Attempts


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the bytes of every file that is written to a host."""
    sizes: list[int] = []
    write = SftpFiles.write

    def counting(self: SftpFiles, path: str, chunks: Iterable[bytes], mode: int) -> None:
        def counted() -> Iterator[bytes]:
            for chunk in chunks:
                sizes[-1] += len(chunk)
                yield chunk

        sizes.append(0)
        write(self, path, counted(), mode)

    monkeypatch.setattr(SftpFiles, "write", counting)
    return sizes


def trees(attempts: Attempts) -> Path:
    return attempts.host.work / ".rung" / STORE / "trees"


def test_only_what_changed_is_sent_and_each_attempt_has_its_own_copy(attempts: Attempts, sent: list[int]) -> None:
    (attempts.source / "weights").write_bytes(os.urandom(4 << 20))
    (attempts.source / "train.sh").write_text(
        "cat out 2>/dev/null; echo one | tee out; echo x >> weights; wc -c <weights\n"
    )
    (attempts.source / "skip.log").write_text("stays home")
    (attempts.source / ".gitignore").write_text("*.log\n")
    first = attempts.start("sh", "train.sh")
    assert attempts.end(first).exit_code == 0
    assert attempts.log(first) == "one\n4194306\n"
    assert sent[-1] > 4 << 20
    before = len(sent)
    # Nothing is sent for the same content, also by a new controller; files of the first attempt are not there.
    attempts.new_engine()
    second = attempts.start("sh", "train.sh")
    assert attempts.end(second).exit_code == 0
    assert attempts.log(second) == "one\n4194306\n"
    assert len(sent) == before
    (attempts.source / "train.sh").write_text("cat weights | wc -c; ls\n")
    (attempts.source / "weights").rename(attempts.source / "moved")
    (attempts.source / "weights").symlink_to("moved")
    third = attempts.start("sh", "train.sh")
    assert attempts.end(third).exit_code == 0
    assert attempts.log(third) == "4194304\nmoved\ntrain.sh\nweights\n"
    assert len(sent) == before + 1
    assert sent[-1] < 1 << 16


def test_a_full_disk_leaves_no_partial_tree_and_shipping_works_when_there_is_room(attempts: Attempts) -> None:
    assert attempts.end(attempts.start("true")).exit_code == 0
    (attempts.source / "weights").write_bytes(os.urandom(8 << 20))
    attempts.host.fill_disk(leave=12 << 20)
    with pytest.raises(EngineError, match="turing: "):
        attempts.start("true")
    assert all(len(tree.name) == 64 for tree in trees(attempts).iterdir() if tree.suffix not in (".tar", ".part"))
    attempts.host.free_disk()
    request = attempts.start("sh", "-c", "wc -c < weights")
    assert attempts.end(request).exit_code == 0
    assert attempts.log(request) == f"{8 << 20}\n"
    assert all(len(tree.name) == 64 for tree in trees(attempts).iterdir())
