"""Finds the files of NVIDIA's driver on this machine: the devices of each GPU, and the libraries that CUDA loads."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rung.jobs.model.gpu import Gpu
from rung.runner.hosts.nvidia_smi import GPU_QUERY, parse_gpus
from tests.fleet.patience import FleetError, run
from tests.gpu.programs import program, search_path

DEVICES = Path("/dev")
CARD = re.compile(r"nvidia[0-9]+")
CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
LIBRARY = re.compile(r"lib(cuda|cudadebugger|nvidia-[a-z0-9-]+|nvoptix)\.so(\.[0-9.]+)?")
GPU_INFORMATION = Path("/proc/driver/nvidia/gpus")
UUID = re.compile(r"GPU UUID:\s+(\S+)")
MINOR = re.compile(r"Device Minor:\s+([0-9]+)")


@dataclass(frozen=True)
class Driver:
    """The devices of each GPU by its UUID, those that all of them need, and the libraries of the driver."""

    cards: dict[str, str]
    control: list[str]
    libraries: list[str]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs of this machine that nvidia-smi lists."""
    done = subprocess.run([str(program("nvidia-smi")), *GPU_QUERY[1:]], capture_output=True, text=True, check=False)
    seen, troubles = parse_gpus(done.stdout or done.stderr)
    if not seen:
        raise FleetError(f"nvidia-smi names no GPU: {'; '.join(troubles) or f'exit code {done.returncode}'}")
    return seen


def find_driver(seen: Iterable[Gpu], devices: Path = DEVICES, information: Path = GPU_INFORMATION) -> Driver:
    named = sorted(path for path in devices.glob("nvidia*") if CARD.fullmatch(path.name))
    minors = dict(device_minors(information))
    cards = {}
    for place, gpu in enumerate(seen):
        listed = named[place] if place < len(named) else devices / f"nvidia{gpu.index}"
        card = devices / f"nvidia{minors[gpu.uuid]}" if gpu.uuid in minors else listed
        if not card.exists():
            raise FleetError(f"{card} is not there: is the driver of {gpu.name} loaded?")
        cards[gpu.uuid] = str(card)
    control = [str(devices / name) for name in CONTROL if (devices / name).exists()]
    return Driver(cards, control, [str(path) for path in libraries()])


def device_minors(information: Path) -> Iterator[tuple[str, int]]:
    """Yield the UUID of each GPU and the number of its device, which is not always its place in the list."""
    for file in information.glob("*/information"):
        text = file.read_text(errors="replace")
        uuid, minor = UUID.search(text), MINOR.search(text)
        if uuid and minor:
            yield uuid[1], int(minor[1])


def libraries() -> list[Path]:
    """Return the driver's libraries by all their names, from wherever the loader finds them."""
    names: dict[str, Path] = {}
    for folder in library_folders():
        for path in sorted(folder.iterdir()):
            if LIBRARY.fullmatch(path.name) and path.exists():
                names.setdefault(path.name, path)
    return list(names.values())


def library_folders() -> list[Path]:
    loader = run("env", f"PATH={search_path()}", "ldconfig", "-p", check=False)
    known = [Path(line.rpartition("=> ")[2]) for line in loader.splitlines() if "=> " in line and "x86-64" in line]
    said = [path.parent for path in known if LIBRARY.fullmatch(path.name)]
    own = [Path(word) for word in os.environ.get("LD_LIBRARY_PATH", "").split(":") if word]
    return [path for path in dict.fromkeys([*said, *own, Path("/usr/local/nvidia/lib64")]) if path.is_dir()]
