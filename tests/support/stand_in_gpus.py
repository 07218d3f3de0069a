"""A stand-in for nvidia-smi on this machine, so that it seems to have GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

CARD = "24576, 580.95.05, 7.5, NVIDIA TITAN RTX"


def stand_in_gpus(folder: Path, count: int, processes: Sequence[str] = (), card: str = CARD) -> list[str]:
    """Write an nvidia-smi into a folder for PATH and return the UUIDs of its GPUs; `processes` are lines of users."""
    uuids = [f"GPU-00000000-0000-0000-0000-{index:012}" for index in range(count)]
    gpus = "\n".join(f"{index}, {uuid}, {card}" for index, uuid in enumerate(uuids))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpus").write_text(f"{gpus}\n" if gpus else "", encoding="utf-8")
    (folder / "processes").write_text("".join(f"{line}\n" for line in processes), encoding="utf-8")
    program = folder / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\ncase $1 in --query-gpu=*) cat '{folder}/gpus' ;; *) cat '{folder}/processes' ;; esac\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    return uuids
