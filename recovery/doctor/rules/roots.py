"""Rules on roots, divisions and eps: the argument or divisor must stay away from 0."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from rung.recovery.doctor.analysis.import_names import dotted
from rung.recovery.doctor.analysis.inference import words_of
from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.analysis.torch_ops import EPS
from rung.recovery.doctor.rules.rule import Hit, Rule, Severity

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
    "use 1e-6 or more (6e-8 is the smallest number that FP16 has), or compute this in FP32: x.float()",
    Severity.WARNING,
    None,
)
RULES = (SQRT_WITHOUT_EPS, DIVISION_WITHOUT_EPS, EPS_VANISHES)
# Half of FP16's smallest number, 2 ** -24: what is smaller rounds to zero.
SMALLEST = 2.0**-25
# What a division by them means is an average or a normalisation of tensors.
HAZARDS = ("norm", "std", "var", "sum of", "mean of", "softmax", "sigmoid", "relu", "abs", "vector_norm")


def check(script: Script) -> Iterator[Hit]:
    """Yield roots of values that can be zero, divisions by them, and each eps that is zero in FP16."""
    yield from _roots(script)
    yield from _divisions(script)
    yield from _vanishing(script)


def _roots(script: Script) -> Iterator[Hit]:
    for call, op in script.called("sqrt", "sqrt_", "rsqrt"):
        if op.home in ("torch", "method") and not (op.home == "method" and op.rest):
            yield from _root(script, call, op.subject)
    for node in script.nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            power = script.judge.extent(node.right)
            if power.low == power.high and abs(power.low) == 0.5:
                yield from _root(script, node, node.left)


def _root(script: Script, node: ast.expr, subject: ast.expr | None) -> Iterator[Hit]:
    extent = script.judge.extent(subject)
    # x ** 2 + y ** 2, value by value: seldom zero, and mostly of coordinates that nobody trains.
    still = extent.is_count or extent.origin.startswith("rand") or (extent.origin, extent.high) == ("square", math.inf)
    if extent.reaches_nought and not still and not _is_detached(script, node, subject) and not script.is_spared(node):
        what = f"{words_of(node)}: the root of a value that can be 0 ({extent.origin})"
        yield Hit(SQRT_WITHOUT_EPS, node, what, script.in_fp32(node))


def _is_detached(script: Script, node: ast.expr, subject: ast.expr | None) -> bool:
    """Tell whether no gradient comes back here: of weights or gradients themselves, or made a number at once."""
    above = script.parent(node)
    if isinstance(above, ast.Attribute) and above.attr in ("item", "detach"):
        return True
    parts = [each for each in (subject, script.judge.followed(subject)) if each is not None]
    return any(
        word in ("data", "detach", "grad") or "grad_" in word for each in parts for word in script.words_in(each)
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
    extent = script.judge.extent(by)
    if not extent.reaches_nought or not extent.origin.startswith(HAZARDS) or script.is_spared(node):
        return
    made = script.judge.operation(script.judge.followed(by))
    if made is not None and made.name in ("sqrt", "rsqrt"):
        return  # The root is told already.
    # A count is judged where it is divided by at once; one that is kept has been added up or looked at before.
    if extent.is_count and not isinstance(by, ast.Call):
        return
    if not _is_guarded(script, node, by):
        what = f"divides by {words_of(by)}, which can be 0 ({extent.origin})"
        yield Hit(DIVISION_WITHOUT_EPS, node, what, script.in_fp32(node), softer=extent.is_count)


def _is_guarded(script: Script, node: ast.AST, by: ast.expr) -> bool:
    """Tell whether an `if` around asks for what is divided by."""
    wanted = {word for word in script.words_in(by) if word not in ("torch", "self", "sum", "norm", "std", "var", "abs")}
    tests = (outer.test for outer in script.scopes.around(node) if isinstance(outer, (ast.If, ast.IfExp)))
    return any(wanted & script.words_in(test) for test in tests)


def _vanishing(script: Script) -> Iterator[Hit]:
    for node in script.nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            for side, other in ((node.right, node.left), (node.left, node.right)):
                if _vanishes(script, side) and not script.is_spared(node):
                    yield from _too_small(script, node, side, other)
    for call, op in script.called("clamp", "clamp_", "clamp_min", "clamp_min_"):
        least = op.argument(0, "min")
        if least is not None and op.subject is not None and _vanishes(script, least) and not script.is_spared(call):
            yield from _too_small(script, call, least, op.subject)


def _vanishes(script: Script, node: ast.expr) -> bool:
    extent = script.judge.extent(node)
    return extent.kind == "number" and extent.low == extent.high and 0.0 < extent.low < SMALLEST


def _too_small(script: Script, node: ast.expr, eps: ast.expr, other: ast.expr) -> Iterator[Hit]:
    """Yield an eps beside a tensor; where nothing is known of that tensor, it may well be FP32, and it is a note."""
    extent = script.judge.extent(other)
    if extent.kind == "number" or extent.is_count or extent.low > 0.0 or _is_guarded(script, node, other):
        return
    value = script.judge.extent(eps).low
    named = f"{words_of(eps)} = {value:g}" if EPS.search(words_of(eps)) else f"{value:g}"
    what = f"{words_of(node)}: {named} is 0 in FP16"
    above = script.parent(node)
    in_log = isinstance(above, ast.Call) and dotted(above.func).rpartition(".")[2] == "log"
    yield Hit(EPS_VANISHES, node, what, script.in_fp32(node), softer=not extent.origin and not in_log)
