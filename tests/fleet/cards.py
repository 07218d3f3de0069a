"""The GPUs that the hosts pretend to have, as the tables that their nvidia-smi prints."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

# 580 is the last branch with support for Pascal; all three cards work with it.
DRIVER = "535.183.01"
GPU_COLUMNS = "index, uuid, name, compute_cap, memory.total, memory.used, driver_version, persistence_mode"
HEALTH_COLUMNS = "temperature.gpu, ecc.errors.uncorrected.volatile.total"
PROCESS_COLUMNS = "gpu_uuid, pid, process_name, used_memory"


@dataclass(frozen=True)
class Card:
    """A kind of GPU: its group in the inventory, its name and capability from nvidia-smi, its memory in MiB."""

    group: str
    name: str
    capability: str
    memory: int


CARDS = {
    "turing": Card("titanrtx", "NVIDIA TITAN RTX", "7.5", 24576),
    "pascal": Card("p100", "Tesla P100-PCIE-16GB", "6.0", 16384),
    "ampere": Card("a100", "NVIDIA A100-SXM4-40GB", "8.0", 40960),
}


def host_names(many: int) -> list[str]:
    """Return so many names of hosts: one of each kind, then a second of each, and so on."""
    kinds = list(CARDS)
    rounds = [kinds[i % len(kinds)] + (f"-{i // len(kinds) + 1}" if i >= len(kinds) else "") for i in range(many)]
    return rounds


def card_of(host: str) -> Card:
    return CARDS[host.partition("-")[0]]


def gpu_uuid(host: str, index: int) -> str:
    """Return the UUID of a GPU, the same in every fleet."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{host}.fleet')}"


def gpu_table(host: str, many: int, driver: str = DRIVER) -> str:
    card = card_of(host)
    rows = [
        f"{index}, {gpu_uuid(host, index)}, {card.name}, {card.capability}, {card.memory}, 0, {driver}, Disabled, 41, 0"
        for index in range(many)
    ]
    return "\n".join([f"{GPU_COLUMNS}, {HEALTH_COLUMNS}", *rows, ""])


def process_table(host: str, processes: Iterable[tuple[int, int, str]]) -> str:
    """Return the table of processes that compute on a host's GPUs, from (index of the GPU, pid, name)."""
    rows = [f"{gpu_uuid(host, index)}, {pid}, {name}, 512" for index, pid, name in processes]
    return "\n".join([PROCESS_COLUMNS, *rows, ""])
