"""The image for jobs of frameworks, made when first needed: what `make image WITH=...` builds, kept as a file.

It is not part of a fleet: most tests do not need it, and it takes minutes and gigabytes.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

from tests.fleet.engine import CLIENT
from tests.fleet.fleet import Fleet
from tests.fleet.host import REGISTRY, Host
from tests.fleet.images import ALL_THREE, ARCHS, ROOT, recipe
from tests.fleet.parts import PYTHON, cache, locked, part
from tests.fleet.patience import FleetError, run, say

NAMES = ("transformers", "peft", "accelerate", "lightning", "PyYAML")
TAG = "rung/frameworks:cpu"
WHAT = "the image for frameworks"


def give_frameworks(fleet: Fleet) -> str:
    """Load the image on every host of a fleet, and return its id."""
    with locked(cache() / "lock"):
        made_of = [fleet.images["python"], (ROOT / "requirements.lock").read_bytes(), *NAMES, *recipe()]
        kept = part("frameworks", made_of, lambda to: make(to, fleet), WHAT)
    say(f"loading {WHAT} on the hosts")
    fleet.at_once(lambda host: load(host, kept / "image.tar"))
    return str(json.loads((kept / "image.json").read_text())["Id"])


def make(to: Path, fleet: Fleet) -> None:
    """Build the image with the fleet's engine as a person does, labelled as if it had kernels for all three cards."""
    wheels = to / "wheels"
    systems = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux1", "manylinux_2_5")
    torch = next(iter(sorted(cache().glob("wheels-*"), key=lambda path: path.stat().st_mtime, reverse=True)))
    run(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"),
        *("--only-binary=:all:", "--python-version", PYTHON, "--find-links", torch),
        *(f"--platform={name}_{platform.machine()}" for name in systems),
        *("--constraint", ROOT / "requirements.lock", "--dest", wheels, "torch", "numpy", *NAMES),
    )
    base = fleet.images["python"].replace(REGISTRY, fleet.registry.address)
    fleet.engine.docker("pull", "--quiet", base)  # the builder itself wants TLS of a registry
    settings = {"GPU": "cpu", "BASE": base, "WITH": " ".join(NAMES), "WHEELS": wheels, "TAG": TAG, "DOCKER": CLIENT}
    settings |= {"PIP_NO_INDEX": "1", "BUILD_FLAGS": "--network=host"}
    words = [f"{name}={value}" for name, value in settings.items()]
    run("make", "--directory", ROOT, "image", *words, env=fleet.engine.env)
    relabelled = f'FROM {TAG}\nLABEL {ARCHS}="{ALL_THREE}"\n'
    fleet.engine.docker("build", "--quiet", f"--tag={TAG}", "-", input=relabelled.encode())
    fleet.engine.docker("save", "--output", to / "image.tar", TAG)
    (to / "image.json").write_text(fleet.engine.docker("inspect", "--format={{json .}}", TAG))
    run("rm", "-r", wheels)


def load(host: Host, archive: Path) -> None:
    """Load an archive on a host, which reads it as it comes."""
    command = [CLIENT, "exec", "--interactive", host.name, "docker", "load", "--quiet"]
    with archive.open("rb") as file:
        done = subprocess.run(command, stdin=file, env=host.engine.env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FleetError(f"{host.name} did not take the image: {done.stderr.strip()[-500:]}")
