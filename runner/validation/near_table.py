"""Builds the part of a validation's report about the modules that came near FP16's limit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rung.recovery.validation.near_limit import FACTOR, LIMIT, NearLimit, advice
from rung.recovery.validation.verdict import Run

QUESTION = "Which modules came near FP16's limit?"
HEADERS = ("module", "largest activation", "largest gradient")
UNSEEN = (
    "not known: modules are watched in scripts that run with knobs.mode: zero-edit or with watch: inside, and in "
    "models that are not compiled"
)
SCALED = "gradients are as the loss scaler scales them, so that the largest of them come near the limit in healthy runs"


@dataclass(frozen=True)
class NearRow:
    module: str
    activations: str
    gradients: str

    @property
    def cells(self) -> tuple[str, str, str]:
        return self.module, self.activations, self.gradients


def near_rows(near: NearLimit | None) -> list[NearRow]:
    """Return a row for each module, those with the largest activations first."""
    if near is None:
        return []
    return [NearRow(name, _size(near.activations.get(name)), _size(near.gradients.get(name))) for name in near.modules]


def _size(size: float | None) -> str:
    return "" if size is None else f"{size:g} (the limit / {LIMIT / size:.1f})"


def near_sentences(near: NearLimit | None) -> list[str]:
    """Return what was seen, and what to do about it."""
    if near is None:
        return [UNSEEN]
    seen = f"within a factor of {FACTOR} of {LIMIT:g}, in {near.watched} of {near.updates} updates that were watched"
    if not near.modules:
        return [f"none came {seen}"]
    lines = [f"these came {seen}"]
    lines += [advice(near.places)] if near.places else []
    return [*lines, SCALED] if near.gradients else lines


def near_facts(run: Run | None) -> dict[str, Any] | None:
    """Return it as data; None where there was no run in FP16, or nobody watched it."""
    near = run.figures.near if run else None
    if near is None:
        return None
    named = {"modules": list(near.modules), "places": list(near.places)}
    return {**asdict(near), **named, "table": [asdict(row) for row in near_rows(near)], "says": near_sentences(near)}
