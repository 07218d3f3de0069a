"""Prepares the parts of a fleet that take minutes once, and keeps each under a hash of its inputs.

base     a Debian system, by debootstrap
wheels   torch and what it needs, by pip
engine   the data folder of the fleet's engine, with the images of hosts in it: prepared ones, and bare ones
images   a registry's folder and the data folder of a host's engine, with the images that jobs run in
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.fleet.engine import Engine, free_number
from tests.fleet.folders import discard, keep_images, scratch
from tests.fleet.images import make_images, recipe
from tests.fleet.leftovers import is_mounted_from
from tests.fleet.patience import FleetError, run, say

ROOT = Path(__file__).resolve().parents[2]
MACHINE = Path(__file__).parent / "machine"
BARE = Path(__file__).parent / "bare" / "machine"
SUITE = "bookworm"
PYTHON = "3.11"  # the suite's
KEPT = 3  # versions of a part that are kept, so that as many checkouts can share the cache
NEEDED = {
    **{"dockerd": "docker.io", "iptables": "iptables", "debootstrap": "debootstrap", "busybox": "busybox-static"},
    **{"ssh-keygen": "openssh-client", "mkfs.ext4": "e2fsprogs", "ip": "iproute2", "setsid": "util-linux"},
}


def cache() -> Path:
    """Return the folder outside of the repository where parts and running fleets lie."""
    return Path(os.environ.get("RUNG_CACHE") or "~/.cache/rung").expanduser().resolve() / "fleet"


@dataclass(frozen=True)
class Parts:
    """The folders of the finished parts of a fleet."""

    engine: Path
    images: Path


@contextmanager
def held(file: IO[str]) -> Iterator[bool]:
    """Try to lock a file, and yield whether that worked. The lock ends with the process."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock against other processes; print a line if another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file, held(file) as ours:
        if not ours:
            say(f"waiting for another set-up ({path})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def prepare() -> Parts:
    """Make the parts that are missing or whose inputs have changed, and return where they lie."""
    check_machine()
    with locked(cache() / "lock"):
        base = part("base", [SUITE, "minbase"], make_base, "a Debian system, with debootstrap")
        wheels = part("wheels", [(ROOT / "requirements.lock").read_bytes()], make_wheels, "torch, with pip")
        inside = [path.read_bytes() for path in sorted(MACHINE.iterdir()) if path.name != "python.Dockerfile"]
        inside += [path.read_bytes() for path in sorted(BARE.rglob("*")) if path.is_file()]
        engine = part("engine", [base.name, *inside], lambda to: make_engine(to, base), "the images of hosts")
        names = [path.name for path in sorted(wheels.glob("*.whl"))]
        made_of = [base.name, (MACHINE / "python.Dockerfile").read_bytes(), *names, *recipe()]
        images = part("images", made_of, lambda to: make_images(to, engine, wheels), "the images that jobs run in")
    return Parts(engine, images)


def check_machine() -> None:
    if os.geteuid() != 0:
        raise FleetError("a fleet runs an engine of its own and needs root")
    lacking = sorted({package for command, package in NEEDED.items() if shutil.which(command) is None})
    if lacking:
        raise FleetError(f"not installed: {' '.join(lacking)}. On Debian, as root: make system")


def part(name: str, made_of: list[str | bytes], make: Callable[[Path], None], what: str) -> Path:
    """Return the folder of a part, made now if there is none for these inputs."""
    parcels = [item.encode() if isinstance(item, str) else item for item in made_of]
    key = hashlib.sha256(b"".join(hashlib.sha256(parcel).digest() for parcel in parcels)).hexdigest()[:12]
    folder = cache() / f"{name}-{key}"
    if not folder.exists():
        began = time.monotonic()
        say(f"making {what} ...")
        new = cache() / f"{name}.new"
        discard(new)
        new.mkdir(parents=True)
        make(new)
        new.rename(folder)
        say(f"made {what} in {time.monotonic() - began:.0f} s")
    os.utime(folder)
    for old in sorted(cache().glob(f"{name}-*"), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        if not is_mounted_from(old):
            discard(old)
    return folder


def make_base(to: Path) -> None:
    with scratch(to) as folder:
        run("debootstrap", "--variant=minbase", SUITE, folder / "system")
        run("tar", "--directory", folder / "system", "--create", "--file", to / "system.tar", ".")


def make_wheels(to: Path) -> None:
    """Fetch wheels for the Python of the base, whatever Python runs here."""
    systems = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
    run(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"),
        *("--only-binary=:all:", "--python-version", PYTHON),
        *(f"--platform={name}_{platform.machine()}" for name in systems),
        *("--constraint", ROOT / "requirements.lock", "--dest", to, "torch", "numpy"),
    )


def make_engine(to: Path, base: Path) -> None:
    """Build the images of hosts in an engine, and keep that engine's images."""
    with scratch(to) as folder:
        engine = Engine(folder / "engine", free_number(250))
        try:
            engine.start()
            engine.docker("import", base / "system.tar", "fleet/base")
            engine.docker("build", "--quiet", "--network=host", "--tag=fleet/host", MACHINE)
            bare = ("--tag=fleet/bare", f"--file={BARE / 'Dockerfile'}", Path(__file__).parent)
            engine.docker("build", "--quiet", "--network=host", *bare)
            engine.docker("builder", "prune", "--all", "--force")
        finally:
            engine.stop()
        keep_images(engine.data, to / "data")
