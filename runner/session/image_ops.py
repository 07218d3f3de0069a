"""Pins the image tags of a job file, and sends images to hosts without a registry."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import DockerException, ImageNotFound

from rung.jobs.model.errors import EngineError, HostError, UsageError
from rung.jobs.model.host import Host
from rung.jobs.model.terminal_text import clean
from rung.jobs.spec.image import LOCK_FILE, is_pinned, is_tag
from rung.jobs.spec.load import images_in, load_pins
from rung.runner.engines.docker.api import EngineApi
from rung.runner.engines.docker.images import Images, archive_id
from rung.runner.hosts.host_list import default_list, find_hosts
from rung.runner.hosts.registry_login import RegistryLogins
from rung.runner.ssh.remote import Remotes

CHUNK_BYTES = 1 << 20
# The manifest of one image names its layers: a few kilobytes.
MANIFEST_BYTES = 1 << 20
LOCK_HEADER = (
    "# Written by `rung image lock`: what each tag of the job files in this folder is pinned to. Keep it with them.\n"
)


@dataclass(frozen=True)
class Pinned:
    """A tag, the image it is pinned to, and the host that resolved it."""

    tag: str
    image: str
    host: str


@contextmanager
def listed_hosts(environ: Mapping[str, str]) -> Iterator[tuple[list[Host], Callable[[Host], Images]]]:
    """Yield the hosts, and a function that returns the images of one."""
    hosts = find_hosts(environ)
    if not hosts:
        raise UsageError(f"there is no list of hosts: write {default_list(environ)}, or name it in RUNG_HOSTS")
    remotes = Remotes(hosts, Path(environ.get("HOME") or "~").expanduser(), environ)

    def images(host: Host) -> Images:
        api = EngineApi(remotes.remote(host.name), host.engine_socket, RegistryLogins(host.registries))
        api.negotiate_version()
        return Images(api, lambda image, argv: (127, ""))

    try:
        yield hosts, images
    finally:
        remotes.close()


def lock(file: Path, host_name: str | None, environ: Mapping[str, str]) -> list[Pinned]:
    """Pin every tag of a job file as a host resolves it, and write the lock file beside it."""
    try:
        field = images_in(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}; give the path of a job file") from None
    tags = _tags(file, field)
    if not tags:
        return []
    with listed_hosts(environ) as (hosts, images):
        found = [_pin(tag, kind, _chosen_hosts(hosts, host_name), images) for tag, kind in tags.items()]
    path = file.parent / LOCK_FILE
    pins = {**load_pins(path), **{one.tag: one.image for one in found}}
    draft = path.with_suffix(".draft")
    draft.write_text(LOCK_HEADER + "".join(f"{json.dumps(tag)}: {json.dumps(pins[tag])}\n" for tag in sorted(pins)))
    draft.rename(path)
    return found


def _tags(file: Path, field: object) -> dict[str, str]:
    """Return the tags in a job file, each with the GPU type it is for."""
    named = field if isinstance(field, dict) else {"": field}
    tags = {name: str(kind) for kind, name in named.items() if isinstance(name, str) and not is_pinned(name)}
    wrong = [name for name in tags if not is_tag(name)]
    if field is None or wrong:
        what = f"{clean(wrong[0])[:80]!r} is not a name of an image" if wrong else "it names no image"
        raise UsageError(f"{file}: {what}; there is nothing to pin")
    return tags


def _chosen_hosts(hosts: list[Host], host_name: str | None) -> list[Host]:
    chosen = [host for host in hosts if host_name in (None, host.name)]
    if not chosen:
        raise UsageError(f"--host {host_name}: no such host; known: {', '.join(host.name for host in hosts)}")
    return chosen


def _pin(tag: str, kind: str, hosts: list[Host], images: Callable[[Host], Images]) -> Pinned:
    """Pin a tag; the hosts with this GPU type are asked first, because an image may be only there."""
    troubles = []
    for host in sorted(hosts, key=lambda host: not host.should_have(kind)):
        try:
            return Pinned(tag, images(host).pin(tag), host.name)
        except (EngineError, HostError) as error:
            troubles.append(str(error))
    raise EngineError(f"{tag} cannot be pinned: {'; '.join(troubles)}")


def send(image: str, host: str, environ: Mapping[str, str], on_bytes: Callable[[int], None]) -> str:
    """Send an image to a host, from the engine here or from a saved archive, and return its id."""
    with listed_hosts(environ) as (hosts, images):
        (chosen,) = _chosen_hosts(hosts, host)
        path = Path(image)
        image_id, archive = _from_file(path) if path.is_file() else _from_local_engine(image)
        images(chosen).send(_counted(archive, on_bytes), image_id)
    return image_id


def _counted(chunks: Iterable[bytes], on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    for chunk in chunks:
        on_bytes(len(chunk))
        yield chunk


def _from_file(path: Path) -> tuple[str, Iterator[bytes]]:
    try:
        with tarfile.open(path) as archive:
            manifest = archive.extractfile("manifest.json")
            image_id = archive_id(manifest.read(MANIFEST_BYTES) if manifest else b"")
    except (OSError, tarfile.TarError, KeyError, EngineError) as error:
        raise UsageError(f"{path}: is no archive of one image, as `docker save` writes it: {error}") from None
    return image_id, _chunks(path)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _from_local_engine(image: str) -> tuple[str, Iterator[bytes]]:
    """Save an image from the engine of this machine, or the one in DOCKER_HOST."""
    try:
        client: Any = docker.APIClient(base_url=os.environ.get("DOCKER_HOST") or None, version="auto")
        image_id = str(client.inspect_image(image)["Id"])
        return image_id, iter(client.get_image(image_id))
    except ImageNotFound:
        raise UsageError(f"{image}: no file of this name, and no image of the engine here") from None
    except (DockerException, requests.RequestException) as error:
        advice = "give the archive that `docker save` wrote"
        raise UsageError(
            f"{image}: no file, and no Docker Engine answers here; {advice}: {clean(str(error))}"
        ) from None
