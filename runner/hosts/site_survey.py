"""Surveys a Slurm cluster: its version, its partitions and the GPUs of its nodes. What it prints is never trusted."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from rung.jobs.model.errors import EngineError
from rung.jobs.model.terminal_text import clean
from rung.jobs.site.partitions import ANY_GPU, Nodes, Partition
from rung.jobs.site.times import parse_shown
from rung.runner.seams.remote import OUTPUT_BYTES, Remote

SURVEY_SECONDS = 60.0
# The commands repeat themselves for nine seconds while the controller of the cluster is away. A line is a node of a
# partition: node, partition (the default one with a star), time limit, nodes of a job, CPUs, and generic resources.
# --all: also partitions that are hidden, so that none is taken for missing.
SCRIPT = """
command -v sbatch >/dev/null 2>&1 || { echo missing; exit 0; }
sinfo --version
sinfo --all --noheader --Node --format='%N|%P|%l|%s|%c|%G' 2>&1 || exit 1
echo end
"""
GPUS = re.compile(r"gpu:(?:([A-Za-z0-9_.-]{1,60}):)?([0-9]{1,4})")
NAME = re.compile(r"[A-Za-z0-9_.+@-]{1,128}")
SIZES = re.compile(r"(?:[0-9]{1,9}-)?([0-9]{1,9})[KMG]?")
NUMBER = re.compile(r"([0-9]{1,9})[+]?")
FIELDS = 6
MOST_LINES = 10_000


@dataclass(frozen=True)
class SiteFacts:
    """What a cluster says of itself: its version, how many GPUs of each type it has, and its partitions."""

    version: str
    gpus: tuple[tuple[str, int], ...] = ()
    # None at all where there are more than are read.
    partitions: tuple[Partition, ...] = ()


def ask_site(remote: Remote) -> SiteFacts:
    """Ask the cluster; EngineError when it does not answer, or when this is no login node."""
    ran = remote.run(["sh", "-c", SCRIPT], timeout=SURVEY_SECONDS)
    text = ran.out.decode("utf-8", "replace")
    if text.strip() == "missing":
        raise EngineError(f"{remote.name}: no sbatch is found there: is it the login node of the cluster?")
    cut = len(ran.out) >= OUTPUT_BYTES
    if ran.code != 0 or not (cut or text.endswith("end\n")):
        said = clean((text.strip().splitlines() or ["no answer"])[-1])[:200]
        raise EngineError(f"{remote.name}: the cluster does not answer: {said}")
    version, *lines = text.splitlines()
    whole = not cut and len(lines) <= MOST_LINES
    rows = [line.split("|", FIELDS - 1) for line in lines[:MOST_LINES] if line.count("|") >= FIELDS - 1]
    return SiteFacts(clean(version)[:60], parse_gpus(rows), parse_partitions(rows) if whole else ())


def parse_gpus(rows: list[list[str]]) -> tuple[tuple[str, int], ...]:
    """Return how many GPUs of each type the nodes have; a node is listed once for each of its partitions."""
    nodes = {row[0]: row[-1] for row in rows}
    found: Counter[str] = Counter()
    for gres in nodes.values():
        found.update(dict(_gpus(gres)))
    return tuple(sorted(found.items()))


def parse_partitions(rows: list[list[str]]) -> tuple[Partition, ...]:
    """Return the partitions, each with its nodes, in the order in which they are listed."""
    found: dict[str, list[list[str]]] = {}
    for row in rows:
        if NAME.fullmatch(row[1].removesuffix("*")):
            found.setdefault(row[1], []).append(row)
    return tuple(_partition(name, listed) for name, listed in found.items())


def _partition(name: str, rows: list[list[str]]) -> Partition:
    _, _, time, sizes, *_ = rows[0]
    most = SIZES.fullmatch(sizes.strip())
    nodes = {row[0]: (_gpus(row[5]), _number(row[4])) for row in rows}
    return Partition(
        name.removesuffix("*"),
        tuple(Nodes(count, *alike) for alike, count in Counter(nodes.values()).items()),
        is_default=name.endswith("*"),
        time=parse_shown(time.strip()),
        # Large numbers are shown in thousands, and no partition is that large.
        most_nodes=int(most[1]) if most and sizes.strip()[-1].isdigit() else None,
    )


def _gpus(gres: str) -> tuple[tuple[str, int], ...]:
    found: Counter[str] = Counter()
    for kind, count in GPUS.findall(gres):
        found[kind or ANY_GPU] += int(count)
    return tuple(sorted(found.items()))


def _number(text: str) -> int:
    found = NUMBER.fullmatch(text.strip())
    return int(found[1]) if found else 0
