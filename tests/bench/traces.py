"""Holds what a training printed, and keeps a few beside the tests, so that these replay real numbers in seconds."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE = Path(__file__).parent / "traces.jsonl.gz"
# One of these of every task: the healthy ones that look worst, and the ones that end in different ways.
KEPT = (
    *("heavy tails", "high restarts", "spikes", "half sgd"),
    *("sgd, lr ramps up", "adam, lr raised at once", "adam, short memory", "half, sgd, lr ramps up"),
)


@dataclass
class Trace:
    """What one training printed: a row a step, up to its first loss that is not finite."""

    plan: str
    task: str
    fault: str
    seed: int
    loss: list[float] = field(default_factory=list)
    grad_norm: list[float] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    scale: list[float] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    # The step of the first loss that is not finite; None where there was none.
    broke: int | None = None


def record(done: Iterable[tuple[int | None, Trace]]) -> None:
    """Write those of the trainings that are kept, with as many digits as a log has."""
    rows, names = [], set()
    for sick, trace in done:
        if trace.plan.removeprefix(f"{trace.task} ") in KEPT and trace.plan not in names:
            names.add(trace.plan)
            row = asdict(trace)
            row.update({name: _short(row[name]) for name in ("loss", "grad_norm", "lr")})
            rows.append(json.dumps({"sick": sick, "trace": row}))
    FILE.write_bytes(gzip.compress("\n".join(rows).encode(), 9, mtime=0))


def _short(values: list[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def load() -> list[tuple[int | None, Trace]]:
    """Return the kept trainings, each with the step of its fault, or None if it is healthy."""
    rows = map(json.loads, gzip.decompress(FILE.read_bytes()).decode().splitlines())
    return [(row["sick"], Trace(**row["trace"])) for row in rows]
