"""The rule on training loops that would not notice a NaN."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.rules.rule import Hit, Rule, Severity

NO_NAN_CHECK = Rule(
    "no-nan-check",
    "a training loop in FP16 that never looks whether its loss is finite",
    "a NaN loss goes on for hours without a word: a scaler skips the updates, exit code 0",
    "if not torch.isfinite(loss): raise ValueError(...), or count and stop after a few",
    Severity.NOTE,
    None,
)
RULES = (NO_NAN_CHECK,)
_NAN_CHECK = re.compile(r"nan|isinf|finite|anomaly|overflow", re.IGNORECASE)


def check(script: Script) -> Iterator[Hit]:
    """Yield the backward pass of a loop in a script without any check for NaN."""
    loops = [node for node, op in script.called("backward") if op.home == "method" and script.in_loop(node)]
    if not loops or not any(True for _ in script.called("step")):
        return
    if not any(_NAN_CHECK.search(name) for name in _names(script)):
        yield Hit(NO_NAN_CHECK, loops[0], "nothing here looks whether the loss is finite")


def _names(script: Script) -> Iterator[str]:
    for node in script.nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, (ast.FunctionDef, ast.keyword)):
            yield getattr(node, "name", None) or getattr(node, "arg", None) or ""
