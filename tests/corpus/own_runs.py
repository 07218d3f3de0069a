"""Shows what is found in excerpts of logs of own runs, from the file beside this one.

Somebody who does not know the rules wrote small trainings in the styles of many programs, let them fail or not, cut
excerpts out of what they printed, and labelled them. `first` is the fault that Rung acted on before any rule was
changed because of them. The rules were then extended with the excerpts of one `side`, of half of the programs; the
other was held out. Since then all have been read, and the rules were extended by families of what was missed: the list
no longer says how well a log is read that nobody has seen.
"""

import io
import json
from typing import Any

from rung.runner.session.explain import explain
from tests.corpus.collection import HERE
from tests.corpus.strangers import NOTHING, RIGHT

FILE = HERE / "own_runs.jsonl"
KINDS = RIGHT | {
    "grad_nonfinite": RIGHT["nan_loss"],
    "comm_fault": {"comm_fault", "infra_fault"},
    "cuda_fault": RIGHT["gpu_error"],
}


def load() -> list[dict[str, Any]]:
    return [json.loads(row) for row in FILE.read_text(encoding="utf-8").splitlines()]


def table() -> list[str]:
    """Return a line per side and group: how many excerpts, and for how many the finding is right."""
    lines = [f"{'':<22}{'logs':>6}{'first':>7}{'now':>6}{'or said':>9}"]
    rows = load()
    for side in ("tune", "held out"):
        for group in ("numeric", "other", "healthy"):
            found = [(row, *_found(row["text"])) for row in rows if (row["side"], row["group"]) == (side, group)]
            first = sum(row["first"] in KINDS[row["label"]] for row, _, _ in found)
            now = sum(acted in KINDS[row["label"]] for row, acted, _ in found)
            said = sum(_is_said(row["label"], acted, doubts) for row, acted, doubts in found)
            lines.append(f"{f'{side}: {group}':<22}{len(found):>6}{first:>7}{now:>6}{said:>9}")
    return lines


def _found(text: str) -> tuple[str, set[str]]:
    """Return the fault that Rung acts on, and those that the log may show."""
    shown = explain(io.BytesIO(text.encode()), lambda read: None)
    return shown.cause or NOTHING, {doubt["fault"] for doubt in shown.may_show}


def _is_said(label: str, acted: str, doubts: set[str]) -> bool:
    """Return whether it is acted on or said to be possible; for a healthy log, whether neither is the case."""
    if KINDS[label] == {NOTHING}:
        return acted == NOTHING and not doubts
    return acted in KINDS[label] or bool(doubts & KINDS[label])
