"""Tests that no name, size, time or link that a host invents leads anywhere else than into the folder of its job.

A host may lie over SFTP and in the output of a throw-away container; both tell the same lies here.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest

from rung.jobs.model.errors import RungError
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.runner.engines.on_host.job_files import COMPLETE, MOST_ENTRIES
from rung.runner.seams.engine import Container, Request
from tests import pace
from tests.support.hostile_engine import Ran
from tests.support.hostile_site import IMAGE, HostileSite
from tests.support.hostile_ssh import HostileHost, Reply, entry, folder, link

# Slow: CI runs these after the others.
pytestmark = [pytest.mark.long, pytest.mark.sample]

CONTENT = b"ssh-ed25519 AAAA stranger\n"
UP = [f"{'../' * depth}planted-{depth}" for depth in range(1, 9)]
NAMES = [
    *("../../x", "..", ".", "/etc/passwd", "/", "a/b", "a/../../b", "", "nul\0name", "line\nbreak", "\x1b[31mred"),
    *("\u202etxt.exe", "x" * 300, "x" * 5000, "é" * 200, "-rf", "~", "$(touch x)", "a\\b", "\udcff", " ", "ck 5", "*"),
    *UP,
]
SIZES = [0, -1, 2**63 - 1, 2**63, 2**64 - 1]
TIMES = [0, -1, 2**31, 2**32 - 1]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HostileSite]:
    made = HostileSite(tmp_path)
    made.add("liar").engine.lines = 200
    yield made
    made.close()


def lists(host: HostileHost, found: list[paramiko.SFTPAttributes]) -> None:
    """Make the host list these entries in the folder of checkpoints, over SFTP and from a container."""
    host.lies.entries = lambda path: list(found) if path.endswith("/checkpoints") else []
    lines = [f"{each.st_mode:x} {each.st_size} {each.st_mtime} ./{each.filename}" for each in found]
    text = "\n".join([*lines, COMPLETE]).encode("utf-8", "surrogateescape")
    host.engine.probe = lambda argv: Ran(text) if "list" in argv else None


def listed(site: HostileSite) -> list[tuple[str, int, float]]:
    """Return what the product makes of the listing; an error of ours is a listing of nothing."""
    at = Path("/rung/job/checkpoints")
    paths = HomePaths(site.rung_home).attempt("job-1", 1)
    request = Request("job-1", 1, ("true",), Path("/rung/work"), {}, paths, at, container=Container(IMAGE))
    try:
        return [(each.name, each.size, each.written_at) for each in site.docker("liar").list_files(request, "*")]
    except RungError as error:
        assert "\n" not in str(error)
        return []


def is_safe(name: str) -> bool:
    """Tell whether a name can only be the name of something in a folder, and is shown as what it is."""
    size = len(name.encode("utf-8", "surrogateescape"))
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name and size <= 255


@pytest.mark.parametrize("make", [entry, folder, link], ids=["file", "folder", "link"])
def test_only_names_of_entries_come_through(make: Callable[..., Any], site: HostileSite) -> None:
    """0.1.0 took every name as it was."""
    lists(site.hosts["liar"], [make(name) for name in [*NAMES, "ck-5.pt"]])
    found = [name for name, _, _ in listed(site)]
    assert all(is_safe(name) for name in found), found
    # The others do not keep an honest name away.
    assert ("ck-5.pt" in found) == (make is not link)


def test_sizes_and_times_are_plain_numbers(site: HostileSite) -> None:
    for size in SIZES:
        for at in TIMES:
            lists(site.hosts["liar"], [entry("ck-5.pt", size, at=at)])
            for _, found, written in listed(site):
                assert 0 <= found < 2**63, f"{size} came through as {found}"
                assert math.isfinite(written)


def test_a_name_that_comes_twice_is_one_entry(site: HostileSite) -> None:
    lists(site.hosts["liar"], [entry("ck-5.pt"), entry("ck-5.pt", 7), folder("ck-5.pt")])
    names = [name for name, _, _ in listed(site)]
    assert len(names) == len(set(names))


def test_more_names_than_a_folder_may_have_are_too_many(site: HostileSite) -> None:
    lists(site.hosts["liar"], [entry(f"{number}") for number in range(MOST_ENTRIES + 1000)])
    # On a busy machine the host, which is in this process, may not answer in time.
    found = pace.until(lambda: listed(site), 60, "the host answers")
    assert len(found) == MOST_ENTRIES


# Whole jobs: the mirror copies a checkpoint from a host that lies


def judges_healthy(argv: list[str]) -> Ran | None:
    """Say that every checkpoint is healthy."""
    if "rung_inside.verify" not in argv:
        return None
    paths = [word for word in argv if word.startswith("/rung/job/")]
    verdicts = [{"path": path, "verdict": "healthy", "step": 5, "detail": "", "kind": "file"} for path in paths]
    return Ran("".join(json.dumps(each) + "\n" for each in verdicts).encode())


def lie_about_checkpoints(host: HostileHost, inner: list[paramiko.SFTPAttributes], top: str = "ck-5") -> None:
    """Show one checkpoint, a folder with these entries, all with the same content and the right checksum."""
    lines = [f"41ed 4096 1700000000 ./{top}"]
    lines += [f"{each.st_mode:x} {each.st_size} {each.st_mtime} ./{top}/{each.filename}" for each in inner]
    listing = Ran("\n".join([*lines, COMPLETE]).encode("utf-8", "surrogateescape"))
    said = {"list": listing, "offer": Ran()}
    host.engine.probe = lambda argv: judges_healthy(argv) or next((said[word] for word in argv if word in said), None)

    def entries(path: str) -> list[paramiko.SFTPAttributes] | None:
        if path.endswith(f"/{top}"):
            return list(inner)
        return [folder(top)] if path.endswith("/checkpoints") else None

    host.lies.entries = entries
    host.lies.content = lambda path, offset, size: CONTENT[offset : offset + size] if top in path else None
    host.lies.attributes = lambda path: entry("x", len(CONTENT)) if top in path and path[-len(top) :] != top else None
    summed = Reply([f"{hashlib.sha256(CONTENT).hexdigest()}  x\n".encode()])
    host.lies.command = lambda command: summed if "sha256sum" in command and top in command else None


def run_with_mirror(site: HostileSite, **checkpoint: object) -> list[str]:
    """Run a job on the lying host until its mirror has had several turns; return what its history says."""
    fields = {"pattern": "ck-*", "mirror_every": 1.0, **checkpoint}
    job = site.submit("liar", checkpoint=fields)
    controller = site.control()
    site.wait(lambda: site.job(job).state is JobState.RUNNING)
    asked = len(site.hosts["liar"].engine.calls)
    kinds = {"mirrored", "not_mirrored"}
    patience = pace.Patience(4)
    while not patience.is_over() and not kinds & {event.kind for event in site.store.events(job)}:
        assert controller.poll() is None, site.shown()
        time.sleep(0.1)
    assert len(site.hosts["liar"].engine.calls) > asked
    assert not site.unexpected()
    return site.because(job)


def test_names_in_a_checkpoint_folder_lead_nowhere_else(site: HostileSite) -> None:
    """0.1.0 wrote `../../../../../.ssh/authorized_keys` as a login on the controller itself."""
    stolen = entry("../../../../../.ssh/authorized_keys", len(CONTENT))
    inner = [stolen, *(entry(name, len(CONTENT)) for name in UP), entry("/tmp/planted-absolute", len(CONTENT))]
    lie_about_checkpoints(site.hosts["liar"], inner)
    before = site.tree()
    told = run_with_mirror(site)
    assert site.tree() == before
    assert not [path for path in site.folder.rglob("planted-*") if not path.is_relative_to(site.folder / "hosts")]
    assert any("no copy of a checkpoint could be made" in each for each in told), "the history says what was stopped"
    assert not Path("/tmp/planted-absolute").exists()


def test_the_name_of_a_checkpoint_leads_nowhere_else(site: HostileSite) -> None:
    """The pattern of the job decides which names are checkpoints, and `ck-*` fits `ck-/../../x`."""
    lie_about_checkpoints(site.hosts["liar"], [entry("a", len(CONTENT))], top="ck-/../../../../planted")
    before = site.tree()
    run_with_mirror(site)
    assert site.tree() == before
    assert not list(site.user_home.rglob("planted*"))


def test_a_mirror_is_no_larger_than_the_job_allows(site: HostileSite) -> None:
    """0.1.0 copied for as long as the host had more bytes."""
    host = site.hosts["liar"]
    lie_about_checkpoints(host, [entry("a", 100)])
    host.lies.attributes = lambda path: entry("x", 2**40) if path.endswith("ck-5/a") else None
    host.lies.content = lambda path, offset, size: b"x" * size if "ck-5" in path else None
    run_with_mirror(site, mirror="1m")
    assert sum(path.stat().st_size for path in site.rung_home.rglob("mirror/**/*") if path.is_file()) <= 2 << 20


def test_a_link_in_the_mirror_is_not_followed(site: HostileSite) -> None:
    """What is on this machine already cannot be used to lead a copy away."""
    lie_about_checkpoints(site.hosts["liar"], [entry("a/planted", len(CONTENT)), link("a", 20)])
    before = site.tree()
    run_with_mirror(site)
    assert site.tree() == before
    assert not [path for path in site.rung_home.rglob("*") if path.is_symlink()]
