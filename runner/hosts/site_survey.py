"""Surveys a Slurm cluster: its version and the GPUs of its nodes. What it prints is treated as hostile."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from rung.jobs.model.errors import EngineError
from rung.jobs.model.terminal_text import clean
from rung.runner.seams.remote import Remote

SURVEY_SECONDS = 60.0
# The commands repeat themselves for nine seconds while the controller of the cluster is away.
SCRIPT = """
command -v sbatch >/dev/null 2>&1 || { echo missing; exit 0; }
sinfo --version
sinfo --noheader --Node --format='%N %G' 2>&1 || exit 1
echo end
"""
GPUS = re.compile(r"gpu:(?:([A-Za-z0-9_.-]{1,60}):)?([0-9]{1,4})")
MOST_LINES = 10_000


@dataclass(frozen=True)
class SiteFacts:
    """What a cluster says of itself: its version, and how many GPUs of each type its nodes have."""

    version: str
    gpus: tuple[tuple[str, int], ...] = ()


def ask_site(remote: Remote) -> SiteFacts:
    """Ask the cluster; EngineError when it does not answer, or when this is no login node."""
    ran = remote.run(["sh", "-c", SCRIPT], timeout=SURVEY_SECONDS)
    text = ran.out.decode("utf-8", "replace")
    if text.strip() == "missing":
        raise EngineError(f"{remote.name}: no sbatch is found there: is it the login node of the cluster?")
    if ran.code != 0 or not text.endswith("end\n"):
        said = clean((text.strip().splitlines() or ["no answer"])[-1])[:200]
        raise EngineError(f"{remote.name}: the cluster does not answer: {said}")
    version, *lines = text.splitlines()[:MOST_LINES]
    return SiteFacts(clean(version)[:60], parse_gpus(lines))


def parse_gpus(lines: list[str]) -> tuple[tuple[str, int], ...]:
    """Return how many GPUs of each type the nodes have; a node is listed once for each of its partitions."""
    nodes = {line.partition(" ")[0]: line.partition(" ")[2] for line in lines}
    found: Counter[str] = Counter()
    for gres in nodes.values():
        for kind, count in GPUS.findall(gres):
            found[kind or "gpu"] += int(count)
    return tuple(sorted(found.items()))
