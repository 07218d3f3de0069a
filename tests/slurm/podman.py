"""A cluster whose user runs containers with a real Podman, without root's rights: the user, the nodes and an image."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.slurm.cluster import Cluster

USER = "rung-podman"
PROGRAMS = ("podman", "crun", "newuidmap", "catatonit", "busybox")
TOOLS = ("sh", "echo", "sleep", "cat", "env", "id", "test")
# crun starts nothing where a controller is in version 2 and others are in version 1, as on some machines of tests.
WITHOUT_CGROUP_2 = 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"'
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class PodmanCluster(Cluster):
    """A cluster whose nodes have mounts of their own."""

    def _start(self, program: str, options: Sequence[str], name: str = "") -> None:
        if program != "slurmd":
            super()._start(program, options, name)
            return
        own = ["--mount", "--propagation", "slave", "sh", "-c", WITHOUT_CGROUP_2, "sh"]
        super()._start("unshare", [*own, shutil.which(program, path=self.env()["PATH"]) or program, *options], name)


@contextmanager
def user() -> Iterator[Path]:
    """Make a user who may run containers without root's rights, and yield the home."""
    lacking = [each for each in PROGRAMS if not shutil.which(each)]
    assert not lacking, f"Podman needs {' '.join(lacking)}: run `make system` as root"
    _remove()
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", "--password", "*", USER], check=True)
    home = Path(f"~{USER}").expanduser()
    try:
        yield home
    finally:
        _remove()


def containers(everything: bool = True) -> list[str]:
    """Return the names of the user's containers, also of those that have ended."""
    words = ["podman", "ps", "--format={{.Names}}", *(["--all"] if everything else [])]
    done = subprocess.run(
        ["runuser", "--login", USER, "-c", " ".join(words)], capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout.split()


def _remove() -> None:
    """Remove the user with the process that holds the user's namespace, if there is one."""
    if subprocess.run(["id", USER], capture_output=True, check=False).returncode == 0:
        subprocess.run(["runuser", "--login", USER, "-c", "podman system migrate"], capture_output=True, check=False)
        subprocess.run(["userdel", "--remove", "--force", USER], capture_output=True, check=False)


def write_image(path: Path) -> str:
    """Write an image with a shell, as `docker save` writes one, and return its id."""
    layer = _tar({f"bin/{tool}": "busybox" for tool in TOOLS}, {"bin/busybox": Path("/bin/busybox").read_bytes()})
    machine = platform.machine()
    config = {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    text = json.dumps(config).encode()
    digest = hashlib.sha256(text).hexdigest()
    manifest = [{"Config": f"{digest}.json", "RepoTags": None, "Layers": ["layer.tar"]}]
    files = {f"{digest}.json": text, "layer.tar": layer, "manifest.json": json.dumps(manifest).encode()}
    path.write_bytes(_tar({}, files))
    os.chmod(path, 0o644)  # noqa: PTH101
    return f"sha256:{digest}"


def _tar(links: dict[str, str], files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return out.getvalue()
