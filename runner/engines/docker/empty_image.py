"""An image without a file, for the containers that work on the files of a job.

An image belongs to a job, and its programs may be hostile. In this one the host's own programs run, which are mounted.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile

from rung.jobs.model.errors import EngineError
from rung.runner.engines.docker.api import EngineApi

# Nobody can pull it: no registry has a name that ends with `.invalid` (RFC 2606).
EMPTY_IMAGE = "rung.invalid/empty:1"
# Where a Linux has its programs and their libraries, and where they look for each other.
PROGRAM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib64", "/usr")
PROGRAMS_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
# The engine's names for machines; its name for any other one is the kernel's.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def ensure_empty_image(api: EngineApi, machine: str) -> None:
    """Give the engine of a host the image, if it does not have it. `machine`: the kernel's name of the architecture."""
    if api.image(EMPTY_IMAGE) is not None:
        return
    api.load([empty_archive(machine)])
    if api.image(EMPTY_IMAGE) is None:
        raise EngineError(f"{api.host}: its engine does not take the empty image for work on files")


def empty_archive(machine: str) -> bytes:
    """Return the image as `docker save` would write it. Pure."""
    layer = _tar({})
    digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    architecture = ARCHITECTURES.get(machine, machine)
    rootfs = {"type": "layers", "diff_ids": [digest]}
    config = json.dumps({"architecture": architecture, "os": "linux", "config": {}, "rootfs": rootfs}).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [EMPTY_IMAGE], "Layers": ["layer.tar"]}]).encode()
    return _tar({name: config, "layer.tar": layer, "manifest.json": manifest})


def _tar(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()
