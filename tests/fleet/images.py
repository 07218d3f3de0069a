"""The images that jobs run in on the fleet, made once: built, pushed to a registry, pulled by a first host.

tiny         busybox, labelled for all three cards: a shell that prints lines, 2 MB
tiny-current the same, for a torch without kernels for the P100
tiny-plain   the same, with no labels
train        the training image of the Dockerfile, labelled as if it had kernels for all three cards
train-cpu    the same with its true labels
far          busybox and some weight; in the registry alone, so that there is something to pull
python       what the training image is built on; in the registry alone
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from tests.fleet import folders
from tests.fleet.engine import CLIENT, Engine, free_number
from tests.fleet.host import IMAGE, REGISTRY, Host, Machine
from tests.fleet.patience import run, say

ROOT = Path(__file__).resolve().parents[2]
MACHINE = Path(__file__).parent / "machine"
PORT = 5000
ARCHS = "rung.cuda.archs"
TAGS = {
    "tiny": "rung/tiny:all",
    "tiny-current": "rung/tiny:current",
    "tiny-plain": "rung/tiny:plain",
    "train": "rung/train:all",
    "train-cpu": "rung/train:cpu",
    "far": "rung/far:latest",
    "python": "fleet/python:base",
}
FAR = {"far", "python"}
ALL_THREE = "sm_60 sm_75 sm_80"
TINY = {"tiny": ALL_THREE, "tiny-current": "sm_75 sm_80 sm_90", "tiny-plain": None, "far": None}


def recipe() -> list[str | bytes]:
    """Return everything in the repository that decides what the images become."""
    target = re.search(r"^image:.*?\n\n", (ROOT / "Makefile").read_text(), re.MULTILINE | re.DOTALL)
    assert target, "the Makefile has a target for the image"
    return [(ROOT / "Dockerfile").read_bytes(), target.group(), Path(__file__).read_bytes()]


def make_images(to: Path, engine_part: Path, wheels: Path) -> None:
    """Build all images, and keep a registry's folder, the data folder of a host's engine, and the list of digests."""
    with folders.scratch(to) as scratch:
        engine = Engine(scratch / "engine", free_number(250))
        folders.share_images(engine_part / "data", engine.data)
        try:
            engine.start()
            registry = start_registry(engine, to / "registry")
            make_tiny(engine, scratch / "tiny")
            say("... building the training image")
            make_training(engine, registry, wheels)
            say("... pushing the images")
            digests = {name: push(engine, registry, tag) for name, tag in TAGS.items()}
            say("... pulling them on a host")
            first = pull_on_a_host(engine, scratch, [tag for name, tag in TAGS.items() if name not in FAR])
        finally:
            engine.stop()
        folders.keep_images(first, to / "data")
    names = {name: f"{REGISTRY}:{PORT}/{tag.partition(':')[0]}" for name, tag in TAGS.items()}
    references = {name: f"{names[name]}@{digest}" for name, digest in digests.items()}
    (to / "images.json").write_text(json.dumps(references))


def start_registry(engine: Engine, folder: Path) -> Machine:
    """Start the fleet's registry; the hosts know it as registry.fleet."""
    registry = Machine("registry", engine.address(2), engine)
    folder.mkdir(exist_ok=True)
    config = "/etc/docker/registry/config.yml"
    registry.create(f"--volume={folder}:/var/lib/registry", IMAGE, "docker-registry", "serve", config)
    return registry


def make_tiny(engine: Engine, folder: Path) -> None:
    """Make the small images from busybox, with a link for each of its programs."""
    (folder / "bin").mkdir(parents=True)
    (folder / "tmp").mkdir(mode=0o1777)
    run("cp", run("which", "busybox").strip(), folder / "bin/busybox")
    for name in run("busybox", "--list").split():
        if name != "busybox":
            (folder / "bin" / name).symlink_to("busybox")
    for name in TINY:
        if name == "far":
            (folder / "weight").write_bytes(os.urandom(8 << 20))
        import_folder(engine, folder, name)


def import_folder(engine: Engine, folder: Path, name: str) -> None:
    tar = folder.with_suffix(".tar")
    run("tar", "--directory", folder, "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "-cf", tar, ".")
    changes = ["ENV PATH=/bin", 'CMD ["sh"]', *([f'LABEL {ARCHS}="{TINY[name]}"'] if TINY[name] else [])]
    engine.docker("import", *(f"--change={change}" for change in changes), tar, TAGS[name])
    tar.unlink()


def make_training(engine: Engine, registry: Machine, wheels: Path) -> None:
    """Build the training image as a person does, with make, on a base that is known by its digest."""
    engine.docker(
        "build", "--quiet", "--network=host", f"--tag={TAGS['python']}", f"--file={MACHINE}/python.Dockerfile", MACHINE
    )
    base = f"{registry.address}:{PORT}/fleet/python@{push(engine, registry, TAGS['python'])}"
    settings = {"GPU": "cpu", "BASE": base, "WHEELS": wheels, "TAG": TAGS["train-cpu"], "DOCKER": CLIENT}
    settings |= {"PIP_NO_INDEX": "1", "BUILD_FLAGS": "--network=host"}
    run("make", "--directory", ROOT, "image", *(f"{name}={value}" for name, value in settings.items()), env=engine.env)
    relabelled = f'FROM {TAGS["train-cpu"]}\nLABEL {ARCHS}="{ALL_THREE}"\n'
    engine.docker("build", "--quiet", f"--tag={TAGS['train']}", "-", input=relabelled.encode())


def push(engine: Engine, registry: Machine, tag: str) -> str:
    """Push an image and return its digest."""
    there = f"{registry.address}:{PORT}/{tag}"
    engine.docker("tag", tag, there)
    engine.docker("push", "--quiet", there)
    found: list[str] = json.loads(engine.docker("inspect", "--format={{json .RepoDigests}}", there))
    return next(name.partition("@")[2] for name in found if name.startswith(f"{registry.address}:"))


def pull_on_a_host(engine: Engine, scratch: Path, tags: list[str]) -> Path:
    """Let a host pull the images, shut it down in good order, and return the data folder of its engine."""
    host = Host("turing", engine.address(11), engine, scratch / "host")
    key = scratch / "key"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    host.prepare(None, "", key)
    host.boot()
    for tag in tags:
        host.docker("pull", "--quiet", f"{REGISTRY}:{PORT}/{tag}")
    engine.docker("stop", "--time=60", host.name)
    return host.folder / "docker"
