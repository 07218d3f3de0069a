"""The rule on constants that FP16 cannot hold."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from rung.recovery.doctor.analysis.import_names import Operation
from rung.recovery.doctor.analysis.inference import source_text
from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.rules.rule import CLAMPED, Hit, Rule, Severity

FILL_BEYOND_FP16 = Rule(
    "fill-beyond-fp16",
    "a tensor filled or clamped with a constant beyond 65504",
    "on an FP16 tensor this raises `value cannot be converted to type Half without overflow`",
    f'fill with float("-inf"), or with torch.finfo(x.dtype).min of the very tensor that is filled; {CLAMPED}',
    Severity.ERROR,
    Severity.NOTE,
)
MASK_BEYOND_FP16 = Rule(
    "mask-beyond-fp16",
    "a constant beyond 65504 written into a tensor, or added to it as a mask",
    "in FP16 it becomes inf without a word; a row that is masked as a whole is NaN after the softmax",
    f"use torch.finfo(x.dtype).min, or -1e4, which FP16 holds; {CLAMPED}",
    Severity.WARNING,
    None,
)
FINFO_OF_ANOTHER = Rule(
    "finfo-of-another-tensor",
    "a tensor filled with the limit of another tensor's dtype",
    "under autocast an input is FP32 and what is computed from it FP16: the limit of the one does not fit the other",
    f"ask the very tensor that is filled: scores.masked_fill(mask, torch.finfo(scores.dtype).min); {CLAMPED}",
    Severity.WARNING,
    None,
)
RULES = (FILL_BEYOND_FP16, MASK_BEYOND_FP16, FINFO_OF_ANOTHER)
LARGEST = 65504.0
_DTYPES = ("dtype", "half", "fp16", "float16")
# The place of the constant among the arguments after the tensor, and its name.
FILLS = {
    "masked_fill": (1, "value"),
    "masked_fill_": (1, "value"),
    "fill_": (0, "value"),
    "index_fill": (2, "value"),
    "index_fill_": (2, "value"),
    "full_like": (0, "fill_value"),
    "new_full": (1, "fill_value"),
}
CLAMPS = {"clamp": ("min", "max"), "clamp_": ("min", "max"), "clamp_min": ("min",), "clamp_max": ("max",)}


def check(script: Script) -> Iterator[Hit]:
    """Yield what is filled, clamped or masked with more than FP16 can hold."""
    for node, op in script.called(*FILLS, *CLAMPS):
        for value in _given(op) if not script.in_fp32(node) else ():
            if op.name.startswith("masked_fill") and _is_limit_of_an_input(script, op, value):
                what = f"{op.name} with {source_text(value)}: the limit of another tensor's dtype"
                yield Hit(FINFO_OF_ANOTHER, node, what)
            elif op.name.startswith("masked_fill") and _is_taken_from_data(script, value):
                what = f"{op.name} with {source_text(value)}, which the data can make larger than FP16's 65504"
                yield Hit(FILL_BEYOND_FP16, node, what, softer=True)
            elif _too_large(script, value) and not _checks_dtype(script, node):
                what = f"{op.name} with {source_text(value)}, beyond FP16's 65504"
                yield Hit(FILL_BEYOND_FP16, node, what)
    yield from _masks(script)


def _given(op: Operation) -> list[ast.expr]:
    if op.home not in ("torch", "method"):
        return []
    if op.name in FILLS:
        place, name = FILLS[op.name]
        given = [op.argument(place, name)]
    else:
        given = [op.argument(place, name) for place, name in enumerate(CLAMPS[op.name])]
    return [value for value in given if value is not None]


def _masks(script: Script) -> Iterator[Hit]:
    """Yield the masks that raise no error: where(..., -1e9), x[mask] = -1e9, (1 - mask) * -1e9."""
    for node, value in _constants(script):
        if _too_large(script, value) and not _checks_dtype(script, node):
            what = f"{source_text(value)} as a mask is infinite in FP16"
            yield Hit(MASK_BEYOND_FP16, node, what, script.in_fp32(node))


def _constants(script: Script) -> Iterator[tuple[ast.AST, ast.expr]]:
    for node, op in script.called("where"):
        if op.home == "torch":
            yield from ((node, value) for value in op.rest)
    for found in script.nodes:
        if isinstance(found, ast.Assign) and isinstance(found.targets[0], ast.Subscript):
            if _is_mask(script, found.targets[0].slice):
                yield found, found.value
        elif isinstance(found, ast.BinOp) and isinstance(found.op, ast.Mult):
            for value, other in ((found.right, found.left), (found.left, found.right)):
                if _is_mask(script, other):
                    yield found, value


def _is_mask(script: Script, node: ast.expr) -> bool:
    return any("mask" in word.lower() for word in script.names_in(node))


def _too_large(script: Script, node: ast.expr) -> bool:
    resolved = script.ranges.follow(node)
    if isinstance(resolved, ast.Attribute) and resolved.attr in ("min", "max", "lowest"):
        return _is_finfo_of_fp32(script, script.ranges.follow(resolved.value))
    values = script.ranges.range_of(node)
    fixed = values.low == values.high and values.kind == "number"
    return fixed and math.isfinite(values.low) and abs(values.low) > LARGEST


def _is_finfo_of_fp32(script: Script, node: ast.expr | None) -> bool:
    if not isinstance(node, ast.Call) or script.names.full(node.func) != "torch.finfo":
        return False
    wide = ("torch.float32", "torch.float", "torch.float64", "torch.double", "torch.bfloat16")
    return not node.args or script.names.full(node.args[0]) in wide


def _is_taken_from_data(script: Script, value: ast.expr) -> bool:
    """Return whether a value is read from a tensor, scaled and not bounded: -1e3 * x.max().item()."""
    made = script.ranges.follow(value)
    if not isinstance(made, ast.BinOp) or not isinstance(made.op, (ast.Mult, ast.Sub)):
        return False
    words = script.names_in(made)
    return bool(words & {"item", "max", "amax"}) and not words & {"clamp", "clip", "min", "minimum", "finfo"}


def _is_limit_of_an_input(script: Script, op: Operation, value: ast.expr) -> bool:
    """Return whether a tensor made in a function is filled with finfo(x.dtype).min of an argument x of it."""
    limit = script.ranges.follow(value)
    bound = isinstance(limit, ast.Attribute) and limit.attr in ("min", "max")
    asked = script.ranges.follow(limit.value) if isinstance(limit, ast.Attribute) and bound else None
    if not isinstance(asked, ast.Call) or script.names.full(asked.func) != "torch.finfo" or not asked.args:
        return False
    dtype = asked.args[0]
    source = dtype.value if isinstance(dtype, ast.Attribute) and dtype.attr == "dtype" else None
    if not isinstance(source, ast.Name) or not isinstance(op.subject, ast.Name) or source.id == op.subject.id:
        return False
    function = script.scopes.function(source)
    given = function.args.args if isinstance(function, ast.FunctionDef) else []
    untouched = script.scopes.value(source) is None and any(each.arg == source.id for each in given)
    return untouched and script.scopes.value(op.subject) is not None


def _checks_dtype(script: Script, node: ast.AST) -> bool:
    """Return whether an enclosing `if` checks the dtype."""
    tests = (outer.test for outer in script.scopes.around(node) if isinstance(outer, (ast.If, ast.IfExp)))
    return any(word in name.lower() for test in tests for name in script.names_in(test) for word in _DTYPES)
