"""Tests that two hosts that share a folder do not clear away what the other one is shipping there.

tests/fleet/containers/test_shipping.py ships to a real host.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from rung.jobs.model.paths import HostPaths
from rung.runner.files.ship import UNPACK_SCRIPT, Shipper
from rung.runner.files.tree import scan
from rung.runner.hosts.local_remote import LocalRemote
from rung.runner.seams.remote import CommandResult


class Interrupted(LocalRemote):
    """A host that gives another one time to ship, while its own tree is half there."""

    other: threading.Thread

    def run(self, argv: Sequence[str], stdin: bytes | None = None, *, timeout: float) -> CommandResult:
        if UNPACK_SCRIPT in argv:
            self.other.start()
            self.other.join(1.0)
        return super().run(argv, stdin, timeout=timeout)


def test_hosts_that_share_a_folder_ship_there_one_after_the_other(tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(f"print('{name}')\n")
    mine, theirs = (scan(tmp_path / name, lambda path, is_folder: False) for name in ("mine", "theirs"))
    paths = HostPaths(str(tmp_path / "home"), "store", str(tmp_path / "shared"))
    first, shipped = Interrupted("turing", os.environ), list[str]()
    second = Shipper(LocalRemote("pascal", os.environ), paths)
    first.other = threading.Thread(target=lambda: shipped.append(second.ship(tmp_path / "theirs", theirs)))
    found = Shipper(first, paths).ship(tmp_path / "mine", mine)
    first.other.join()
    texts = [Path(folder, "train.py").read_text() for folder in (found, *shipped)]
    assert texts == ["print('mine')\n", "print('theirs')\n"]
