"""Shows what was found in excerpts of logs that other people posted in public threads, from the file beside this one.

The excerpts are their words and are not kept here. strangers.jsonl has the address of each, its label, which was given
without knowledge of the rules, and the fault that Rung acts on at its end: `first` before any rule was changed because
of these excerpts, `now` after that. There are eight lists, each collected after the rules had been extended because of
those before it. The excerpts of the second were written anew in the formats of the threads, with other numbers and
names. Of the last five, the misses of one half were read to extend the rules; of the other half (`held_out`) none was.
Where `visible` is false, the excerpt is cut off too early for a careful person to see the fault. `said` has
the faults that `rung explain` says a log of the last four may show, where it acted on none at first. The seventh was
collected in two parts (L7, L8), as was the eighth (p1: files of repositories, p2: threads); excerpts whose address is
in an older list were left out.
"""

import json
from typing import Any

from tests.corpus.collection import HERE

FILE = HERE / "strangers.jsonl"
NOTHING = "-"
# By label, the faults that are right: several say the same about a run, and have the same cures.
RIGHT = {
    "nan_loss": {"nan_loss", "grad_nonfinite", "scale_collapse"},
    "scale_collapse": {"scale_collapse", "nan_loss", "scale_thrash"},
    "scale_thrash": {"scale_thrash", "scale_collapse", "divergence"},
    "divergence": {"divergence", "nan_loss"},
    "fp16_overflow": {"fp16_overflow"},
    "unscale_error": {"unscale_error"},
    "oom": {"oom"},
    "gpu_error": {"cuda_fault", "image_arch"},
    "collective": {"comm_fault", "cuda_fault"},
    "killed": {"oom", "infra_fault", "comm_fault"},
    "infra_fault": {"infra_fault", "oom", "comm_fault"},
    "disk": {"infra_fault"},
    "tracker_network": {"infra_fault", "comm_fault"},
    # A data worker can die of memory or of the machine; otherwise Rung has no name for these, and must give none.
    "data": {NOTHING, "infra_fault", "oom"},
    "script_error": {NOTHING},
    "dtype_error": {NOTHING},
    "healthy": {NOTHING},
    # A label that says no more: any fault of the group.
    "numeric": {"fp16_overflow", "nan_loss", "unscale_error", "scale_collapse", "scale_thrash", "divergence"}
    | {"grad_nonfinite", "not_learning"},
    "other": {"oom", "cuda_fault", "image_arch", "comm_fault", "infra_fault", "unknown_exit", "stalled"},
}
GROUPS = {
    "numeric faults": (
        "numeric",
        "fp16_overflow",
        "nan_loss",
        "unscale_error",
        "scale_collapse",
        "scale_thrash",
        "divergence",
    ),
    "other faults": ("other", "oom", "gpu_error", "collective", "killed", "disk", "tracker_network", "infra_fault"),
    "errors of other kinds": ("script_error", "dtype_error", "data"),
    "healthy": ("healthy",),
}


def load() -> list[dict[str, Any]]:
    return [json.loads(row) for row in FILE.read_text(encoding="utf-8").splitlines()]


def right(rows: list[dict[str, Any]], when: str) -> int:
    """Return how many rows have a right finding, `first` or `now`."""
    return sum(row[when] in RIGHT[row["label"]] for row in rows)


def table() -> list[str]:
    """Return the lines of the tables of all lists: a line per group, and one per label of a fault."""
    rows = load()
    lists = {f"list {number}": [row for row in rows if row["list"] == number] for number in (1, 2, 3, 4)}
    lists["list 4, held out"] = [row for row in lists["list 4"] if row["held_out"]]
    lists["list 4, visible"] = [row for row in lists["list 4"] if row["visible"]]
    lists["list 5"] = [row for row in rows if row["list"] == 5]
    lists["list 5, held out"] = [row for row in lists["list 5"] if row["held_out"]]
    lists["list 5, or said"] = [_or_said(row) for row in lists["list 5"]]
    lists["list 6"] = [row for row in rows if row["list"] == 6]
    lists["list 6, held out"] = [row for row in lists["list 6"] if row["held_out"]]
    lists["list 7"] = [row for row in rows if row["list"] == 7]
    lists["list 7, held out"] = [row for row in lists["list 7"] if row["held_out"]]
    lists["list 8"] = [row for row in rows if row["list"] == 8]
    lists["list 8, held out"] = [row for row in lists["list 8"] if row["held_out"]]
    return [line for name, each in lists.items() for line in _table(name, each)]


def _or_said(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with what its log was said to show, where nothing was acted on."""
    said = next((kind for kind in row["said"] if kind in RIGHT[row["label"]]), next(iter(row["said"]), NOTHING))
    return {**row, **{when: said for when in ("first", "now") if row[when] == NOTHING}}


def _table(name: str, rows: list[dict[str, Any]]) -> list[str]:
    lines = [f"{name:<24}{'logs':>6}{'first':>7}{'now':>6}"]
    for group, labels in GROUPS.items():
        lines.append(_line(group, [row for row in rows if row["label"] in labels]))
        if len(labels) > 1:
            lines += [
                _line(f"  {label}", found)
                for label in labels
                if (found := [row for row in rows if row["label"] == label])
            ]
    return lines


def _line(name: str, rows: list[dict[str, Any]]) -> str:
    return f"{name:<24}{len(rows):>6}{right(rows, 'first'):>7}{right(rows, 'now'):>6}"
