"""The rule on exponentials: FP16 holds exp(x) up to x = 11.1."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from rung.recovery.doctor.analysis.import_names import dotted
from rung.recovery.doctor.analysis.inference import words_of
from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.rules.rule import Hit, Rule, Severity

EXP_WITHOUT_CLIP = Rule(
    "exp-without-clip",
    "exp of a value that nothing bounds from above",
    "exp(11.1) is beyond FP16's 65504: it becomes inf, and inf / inf or inf - inf is NaN",
    "take the maximum off first (softmax does), clamp: torch.exp(x.clamp(max=10)), or use FP32: x.float().exp()",
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
    """Tell whether a value is what `self` holds, such as a parameter that is the log of a width."""
    for part in (node, script.judge.followed(node)):
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
        extent = script.judge.extent(op.subject)
        if extent.kind == "number" or extent.high <= HIGHEST or script.is_spared(node):
            continue
        if "scale" in dotted(op.subject).lower() or "temp" in dotted(op.subject).lower():
            continue  # One learned number, which starts small and stays so: CLIP's logit_scale.
        if _is_negated(script.judge.followed(op.subject)) and not extent.origin:
            continue  # exp(-distance / width): whoever writes the minus expects something positive behind it.
        bound = f"up to {extent.high:g}" if extent.high < math.inf else "without a bound from above"
        # The log of something: of a ratio, a variance. It may well stay small.
        softer = any("log" in word.lower() for word in script.words_in(op.subject)) or _is_learned(script, op.subject)
        yield Hit(EXP_WITHOUT_CLIP, node, f"{words_of(node)}: exp of a value {bound}", script.in_fp32(node), softer)
