"""The programs that a machine needs to become a host, and the package of each."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.fleet.patience import FleetError

# Folders of programs for administrators, which the PATH of a plain account may lack.
ADMINISTRATION = ("/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/local/nvidia/bin")
NEEDED = {
    "dockerd": "docker.io (or docker-ce)",
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "runc": "runc",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "setsid": "util-linux",
    "useradd": "passwd",
    "nvidia-smi": "NVIDIA's driver",
}
HOOK = "nvidia-container-runtime-hook"


def search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), *ADMINISTRATION])


def found(name: str, search: str | None = None) -> Path | None:
    path = shutil.which(name, path=search_path() if search is None else search)
    return Path(path).absolute() if path else None


def program(name: str) -> Path:
    """Return the path of a program; the error names what to install."""
    path = found(name)
    if path is None:
        raise FleetError(f"{name} is not on PATH: install {NEEDED.get(name, name)}")
    return path


def check_machine(search: str | None = None) -> None:
    """Raise an error that names in one line all that this machine lacks to become a host."""
    lacking = [f"{name} (install {package})" for name, package in NEEDED.items() if found(name, search) is None]
    if lacking:
        raise FleetError(f"not on PATH: {', '.join(lacking)}")
    if os.geteuid() != 0:
        raise FleetError("a machine becomes a host with an engine, an sshd and an account of its own, which needs root")
