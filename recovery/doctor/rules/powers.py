"""The rule on exponentials: FP16 holds exp(x) up to x = 11.1."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from rung.recovery.doctor.analysis.import_names import dotted
from rung.recovery.doctor.analysis.inference import source_text
from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.rules.rule import IN_FP32, Hit, Rule, Severity

EXP_WITHOUT_CLIP = Rule(
    "exp-without-clip",
    "exp of a value that nothing bounds from above",
    "exp(11.1) is beyond FP16's 65504: it becomes inf, and inf / inf or inf - inf is NaN",
    "take the maximum off first (softmax does), clamp: torch.exp(x.clamp(max=10)), or use FP32: x.float().exp(), "
    f"{IN_FP32}",
    Severity.WARNING,
    None,
)
RULES = (EXP_WITHOUT_CLIP,)
HIGHEST = math.log(65504.0)


def _is_negated(node: ast.expr | None) -> bool:
    while isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        node = node.left
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)


def _is_learned(script: Script, node: ast.expr | None) -> bool:
    """Return whether a value is an attribute of `self`, such as a parameter that is the log of a width."""
    for part in (node, script.ranges.follow(node)):
        while isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            part = part.func.value
        if part is not None and dotted(part).startswith("self."):
            return True
    return False


def check(script: Script) -> Iterator[Hit]:
    """Yield the exponentials without a bound."""
    for node, op in script.called("exp", "exp_"):
        if op.home not in ("torch", "method") or op.subject is None or (op.home == "method" and op.rest):
            continue
        values = script.ranges.range_of(op.subject)
        if values.kind == "number" or values.high <= HIGHEST or script.is_untrained(node):
            continue
        if "scale" in dotted(op.subject).lower() or "temp" in dotted(op.subject).lower():
            continue  # One learned number that starts small and stays small: CLIP's logit_scale.
        if _is_negated(script.ranges.follow(op.subject)) and not values.origin:
            continue  # exp(-distance / width): after a minus the value is expected to be positive.
        bound = f"up to {values.high:g}" if values.high < math.inf else "without a bound from above"
        # The log of a ratio or a variance can stay small.
        softer = any("log" in word.lower() for word in script.names_in(op.subject)) or _is_learned(script, op.subject)
        yield Hit(EXP_WITHOUT_CLIP, node, f"{source_text(node)}: exp of a value {bound}", script.in_fp32(node), softer)
