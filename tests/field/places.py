"""The places where the jobs can run: this machine, the test fleet, or a container on this machine's GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Two trainings share the cores of a small machine; neither may take them all.
ONE_THREAD = {"envs": {"OMP_NUM_THREADS": "1"}}
FRAMEWORKS = ("audio-lora", "dbnet-ocr", "mmgcn")


@dataclass(frozen=True)
class Place:
    """Where jobs run: the fields of their job files, how many run at once, and the environment of the controller."""

    name: str
    fields: dict[str, Any]
    at_once: int = 1
    env: dict[str, str] = field(default_factory=dict)
    # A RUNG_HOME that is removed with the place; None stores it with the results.
    home: Path | None = None
    # For jobs that need more than torch and numpy.
    framework_fields: dict[str, Any] = field(default_factory=dict)

    def fields_for(self, job: str) -> dict[str, Any]:
        return {**self.fields, **(self.framework_fields if job in FRAMEWORKS else {})}


@contextmanager
def place(name: str, jobs: list[str]) -> Iterator[Place]:
    """Prepare a place, yield it, and clean up."""
    with {"here": here, "fleet": fleet, "gpu": gpu}[name](jobs) as found:
        yield found


@contextmanager
def here(_: list[str]) -> Iterator[Place]:
    yield Place("here", ONE_THREAD, at_once=2)


@contextmanager
def fleet(jobs: list[str]) -> Iterator[Place]:
    # Imported here, because jobs on this machine do not need what the fleet imports.
    from tests.fleet.fleet import Fleet
    from tests.fleet.frameworks import give_frameworks

    with Fleet.claimed() as hosts:
        hosts.up(2)
        more = {"image": give_frameworks(hosts)} if set(jobs) & set(FRAMEWORKS) else {}
        wishes = [f"{host.card.group}:1" for host in hosts.hosts.values()]
        fields = {**ONE_THREAD, "image": hosts.images["train"], "resources": {"gpu": wishes}}
        yield Place("fleet", fields, at_once=2, env={"RUNG_HOSTS": str(hosts.inventory)}, framework_fields=more)


@contextmanager
def gpu(_: list[str]) -> Iterator[Place]:
    from tests.gpu.host import FOLDER, GpuHost

    with GpuHost(Path(FOLDER)).up() as host:
        env = {"RUNG_HOSTS": str(host.inventory), "HOME": str(host.client)}
        yield Place(f"{host.gpus[0].name}", host.fields(), env=env, home=host.folder / "rung")
