"""Rules on roots, divisions and eps: the argument or divisor must stay away from 0."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from rung.recovery.doctor.analysis.import_names import dotted
from rung.recovery.doctor.analysis.inference import source_text
from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.analysis.torch_ops import EPS
from rung.recovery.doctor.rules.rule import IN_FP32, Hit, Rule, Severity

SQRT_WITHOUT_EPS = Rule(
    "sqrt-without-eps",
    "square root of a value that can be 0",
    "the gradient of sqrt is infinite at 0, and 0 times infinity is NaN, in every precision; FP16 gets to 0 sooner",
    "add an eps under the root: torch.sqrt(x + 1e-6), or x.clamp(min=1e-6).sqrt()",
    Severity.WARNING,
    Severity.NOTE,
)
DIVISION_WITHOUT_EPS = Rule(
    "division-without-eps",
    "division by a value that can be 0",
    "0 / 0 is NaN and x / 0 inf; in FP16 small norms and sums round to 0",
    "keep it away from 0: x / (y + 1e-6), or x / y.clamp(min=1e-6)",
    Severity.WARNING,
    Severity.NOTE,
)
EPS_VANISHES = Rule(
    "eps-vanishes",
    "an eps that FP16 rounds to 0",
    "below 3e-8 a number is 0 in FP16: adding it or clamping to it changes nothing, log(0 + 1e-8) is -inf",
    f"use 1e-6 or more (6e-8 is the smallest number that FP16 has), or compute this in FP32: x.float(), {IN_FP32}",
    Severity.WARNING,
    None,
)
RULES = (SQRT_WITHOUT_EPS, DIVISION_WITHOUT_EPS, EPS_VANISHES)
# Half of FP16's smallest number, 2 ** -24: a smaller number rounds to zero.
SMALLEST = 2.0**-25
# A division by one of these is an average or a normalisation of tensors.
HAZARDS = ("norm", "std", "var", "sum of", "mean of", "softmax", "sigmoid", "relu", "abs", "vector_norm")


def check(script: Script) -> Iterator[Hit]:
    """Yield roots of values that can be zero, divisions by them, and each eps that is zero in FP16."""
    yield from _roots(script)
    yield from _divisions(script)
    yield from _vanishing_eps(script)


def _roots(script: Script) -> Iterator[Hit]:
    for call, op in script.called("sqrt", "sqrt_", "rsqrt"):
        if op.home in ("torch", "method") and not (op.home == "method" and op.rest):
            yield from _root(script, call, op.subject)
    for node in script.nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            power = script.ranges.range_of(node.right)
            if power.low == power.high and abs(power.low) == 0.5:
                yield from _root(script, node, node.left)


def _root(script: Script, node: ast.expr, subject: ast.expr | None) -> Iterator[Hit]:
    values = script.ranges.range_of(subject)
    if not values.can_be_zero or values.is_count or values.origin.startswith("rand"):
        return
    # Elementwise x ** 2 + y ** 2 is rarely zero, and mostly of coordinates that are not trained.
    elementwise = (values.origin, values.high) == ("square", math.inf)
    if not elementwise and not _is_detached(script, node, subject) and not script.is_untrained(node):
        what = f"{source_text(node)}: the root of a value that can be 0 ({values.origin})"
        yield Hit(SQRT_WITHOUT_EPS, node, what, script.in_fp32(node))


def _is_detached(script: Script, node: ast.expr, subject: ast.expr | None) -> bool:
    """Return whether no gradient goes through here: a root of weights or gradients, or one followed by item()."""
    above = script.parent(node)
    if isinstance(above, ast.Attribute) and above.attr in ("item", "detach"):
        return True
    parts = [each for each in (subject, script.ranges.follow(subject)) if each is not None]
    return any(
        word in ("data", "detach", "grad") or "grad_" in word for each in parts for word in script.names_in(each)
    )


def _divisions(script: Script) -> Iterator[Hit]:
    for node in script.nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield from _division(script, node, node.right)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            yield from _division(script, node, node.value)
    for call, op in script.called("div", "div_", "divide", "true_divide"):
        if op.home in ("torch", "method") and op.rest:
            yield from _division(script, call, op.rest[0])


def _division(script: Script, node: ast.expr | ast.stmt, by: ast.expr) -> Iterator[Hit]:
    values = script.ranges.range_of(by)
    if not values.can_be_zero or not values.origin.startswith(HAZARDS) or script.is_untrained(node):
        return
    made = script.ranges.operation(script.ranges.follow(by))
    if made is not None and made.name in ("sqrt", "rsqrt"):
        return  # The root is reported already.
    # A count is reported only when it is computed in the division; a stored one is often checked before.
    if values.is_count and not isinstance(by, ast.Call):
        return
    if not _is_guarded(script, node, by):
        what = f"divides by {source_text(by)}, which can be 0 ({values.origin})"
        yield Hit(DIVISION_WITHOUT_EPS, node, what, script.in_fp32(node), softer=values.is_count)


def _is_guarded(script: Script, node: ast.AST, by: ast.expr) -> bool:
    """Return whether an enclosing `if` checks the divisor."""
    wanted = {word for word in script.names_in(by) if word not in ("torch", "self", "sum", "norm", "std", "var", "abs")}
    tests = (outer.test for outer in script.scopes.around(node) if isinstance(outer, (ast.If, ast.IfExp)))
    return any(wanted & script.names_in(test) for test in tests)


def _vanishing_eps(script: Script) -> Iterator[Hit]:
    for node in script.nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            for side, other in ((node.right, node.left), (node.left, node.right)):
                if _vanishes(script, side) and not script.is_untrained(node):
                    yield from _too_small(script, node, side, other)
    for call, op in script.called("clamp", "clamp_", "clamp_min", "clamp_min_"):
        least = op.argument(0, "min")
        if least is not None and op.subject is not None and _vanishes(script, least) and not script.is_untrained(call):
            yield from _too_small(script, call, least, op.subject)


def _vanishes(script: Script, node: ast.expr) -> bool:
    values = script.ranges.range_of(node)
    return values.kind == "number" and values.low == values.high and 0.0 < values.low < SMALLEST


def _too_small(script: Script, node: ast.expr, eps: ast.expr, other: ast.expr) -> Iterator[Hit]:
    """Yield an eps that is added to a tensor; a note when nothing is known of the tensor, which can be FP32."""
    values = script.ranges.range_of(other)
    if values.kind == "number" or values.is_count or values.low > 0.0 or _is_guarded(script, node, other):
        return
    value = script.ranges.range_of(eps).low
    named = f"{source_text(eps)} = {value:g}" if EPS.search(source_text(eps)) else f"{value:g}"
    what = f"{source_text(node)}: {named} is 0 in FP16"
    above = script.parent(node)
    in_log = isinstance(above, ast.Call) and dotted(above.func).rpartition(".")[2] == "log"
    yield Hit(EPS_VANISHES, node, what, script.in_fp32(node), softer=not values.origin and not in_log)
