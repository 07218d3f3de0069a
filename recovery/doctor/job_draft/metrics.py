"""Finds the numbers on held-out data that a script prints, by the names that Rung reads in its log."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from rung.recovery.doctor.analysis.script import Script

HELD_OUT = frozenset({"val", "valid", "validation", "eval", "evaluation", "test", "dev", "heldout", "holdout"})
MOST = 500
PRINTS = ("print", "info", "write", "echo", "log_message")
# The name right before a number: "val_loss=", "val loss: ", "test acc ".
_NAME = re.compile(r"(?:^|[\s,;|(\[])([A-Za-z][\w/-]*(?: [A-Za-z][\w-]*)?)\s*[:=]?\s*$")
LOWER = re.compile(r"loss|err|ppl|perplexity|nll|mse|mae|wer|cer|fid", re.IGNORECASE)
HIGHER = re.compile(r"acc|f1|auc|bleu|rouge|iou|map|recall|precision|score|psnr|ssim", re.IGNORECASE)


@dataclass(frozen=True)
class Metric:
    """A printed number on held-out data, and which way it gets better."""

    name: str
    better: str
    line: int


def find_metric(script: Script) -> Metric | None:
    """Return the first number on held-out data that the script prints; a loss before a score."""
    found = [each for node, _ in islice(script.called(*PRINTS), MOST) for each in _printed(node)]
    if any(module.partition(".")[0] == "transformers" for module in script.names.modules):
        # The Trainer prints the result.
        found += [Metric("eval_loss", "lower", node.lineno) for node, op in script.called("evaluate") if not op.rest]
    return min(found, key=lambda each: (each.better != "lower", each.line), default=None)


def _printed(node: ast.Call) -> Iterator[Metric]:
    for text in (part for part in ast.walk(node) if isinstance(part, ast.JoinedStr)):
        for before, value in zip(text.values, text.values[1:], strict=False):
            if isinstance(before, ast.Constant) and isinstance(value, ast.FormattedValue):
                match = _NAME.search(str(before.value))
                name = re.sub(r"[\s/-]+", "_", match[1]).lower() if match else ""
                better = "lower" if LOWER.search(name) else "higher" if HIGHER.search(name) else ""
                if better and HELD_OUT & set(name.split("_")):
                    yield Metric(name, better, node.lineno)
