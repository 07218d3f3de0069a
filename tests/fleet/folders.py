"""The folders of a fleet: copies that share what never changes, and small disks that can be full."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.fleet.leftovers import mounts_under, unmount_under
from tests.fleet.patience import run

# The folders of an engine that hold images; it makes all others anew.
IMAGE_FOLDERS = ("image", "overlay2")
SMALL_DISK = 2 << 30


def share_images(source: Path, target: Path) -> None:
    """Give an engine a data folder of its own with ready images in it, whose layers it reads where they are kept.

    Mounts instead of copies, because a layer has thousands of files, and some disks take milliseconds to remove each.
    """
    target.mkdir(parents=True)
    # A mount point of its own first: an engine would otherwise put one over the mounts below.
    run("mount", "--bind", target, target)
    run("cp", "--archive", source / "image", target)
    (target / "overlay2").mkdir(mode=0o710)
    for layer in (source / "overlay2").iterdir():
        if layer.name == "l":
            run("cp", "--archive", layer, target / "overlay2")
        else:
            share_layer(layer, target / "overlay2" / layer.name)


def share_layer(source: Path, target: Path) -> None:
    """Mount the files of a layer; the engine's own notes beside them are copied, because it writes them again."""
    target.mkdir(mode=0o710)
    for entry in source.iterdir():
        if entry.is_dir():
            (target / entry.name).mkdir()
        else:
            shutil.copy2(entry, target)
    run("mount", "--bind", "-o", "ro", source / "diff", target / "diff")


def share_registry(source: Path, target: Path) -> None:
    """Give a registry a folder of its own. Its blobs are written once and never changed: hard links will do."""
    inside = Path("docker/registry/v2")
    (target / inside).mkdir(parents=True)
    run("cp", "--archive", source / inside / "repositories", target / inside)
    run("cp", "--archive", "--link", source / inside / "blobs", target / inside)


def keep_images(data: Path, to: Path) -> None:
    """Keep what an engine needs to know its images, and nothing else that it remembers."""
    to.mkdir()
    run("cp", "--archive", *(data / name for name in IMAGE_FOLDERS), to)


def discard(folder: Path) -> None:
    """Remove a folder in which things may still be mounted."""
    unmount_under(folder)
    assert not mounts_under(folder), f"{folder}: what is mounted there would be removed, too"
    if folder.exists():
        run("rm", "-rf", "--one-file-system", folder)


def make_disk(image: Path, point: Path, size: int = SMALL_DISK) -> None:
    """Make a file system in a sparse file and mount it: a disk that can be full, and that is removed as one file."""
    point.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(size)
    # No blocks kept for root: root and the account see the same disk full.
    run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", image)
    run("mount", "-o", "loop", image, point)
    (point / "lost+found").rmdir()


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Yield a folder on a disk of its own, which is gone afterwards in no time however many files it held."""
    make_disk(folder / "scratch.disk", folder / "scratch", 32 << 30)
    try:
        yield folder / "scratch"
    finally:
        unmount_under(folder / "scratch")
        (folder / "scratch").rmdir()
        (folder / "scratch.disk").unlink()


def fill(point: Path, leave: int = 0) -> None:
    """Fill a file system until no more than some bytes are free."""
    free = os.statvfs(point)
    with (point / ".full").open("ab") as file, contextlib.suppress(OSError):
        os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - leave))
    if leave == 0:
        top_up(point / ".full")


def top_up(path: Path) -> None:
    """Write until nothing fits: a reservation stops a little short of a full disk."""
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def free(point: Path) -> None:
    (point / ".full").unlink(missing_ok=True)
