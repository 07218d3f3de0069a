"""Rules on the order of a step: unscale once, then clip."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice, pairwise

from rung.recovery.doctor.analysis.import_names import Operation, dotted
from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.rules.rule import Hit, Rule, Severity

CLIP_BEFORE_UNSCALE = Rule(
    "clip-before-unscale",
    "gradients are clipped while they are still scaled",
    "they are up to 65536 times too large there, so that clipping makes nearly nothing of every update",
    "call scaler.unscale_(optimizer) right before clip_grad_norm_",
    Severity.ERROR,
    Severity.ERROR,
)
UNSCALE_TWICE = Rule(
    "unscale-twice",
    "gradients are unscaled twice in one step",
    "the second call raises `unscale_() has already been called on this optimizer since the last update().`",
    "unscale once, before the first use of the gradients",
    Severity.ERROR,
    Severity.ERROR,
)
RULES = (CLIP_BEFORE_UNSCALE, UNSCALE_TWICE)
# Most calls of a kind that are examined in one file: each is compared with the whole file.
MOST = 50
CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")


def check(script: Script) -> Iterator[Hit]:
    """Yield clipping before unscale_(), and a second unscale_() in one step."""
    yield from _clips(script)
    yield from _unscaled_twice(script)


def _clips(script: Script) -> Iterator[Hit]:
    for node, _ in islice(script.called(*CLIPS), MOST):
        function = script.scopes.function(node)
        backward = _last_before(
            script, node, [call for call, op in script.called("backward") if _is_scaled(script, op)]
        )
        if backward is None or not any(
            _after(step, node) and script.scopes.function(step) is function and not script.are_exclusive(step, node)
            for step, op in script.called("step")
            if _is_scaler_step(op)
        ):
            continue
        unscaled = _last_before(script, node, [call for call, _ in script.called("unscale_", "unscale_gradients")])
        if unscaled is None or _after(backward, unscaled):
            yield Hit(CLIP_BEFORE_UNSCALE, node, "the gradients are clipped before scaler.unscale_(optimizer)")


def _last_before(script: Script, node: ast.Call, calls: list[ast.Call]) -> ast.Call | None:
    function = script.scopes.function(node)
    found = [
        call
        for call in calls
        if _after(node, call) and script.scopes.function(call) is function and not script.are_exclusive(call, node)
    ]
    return found[-1] if found else None


def _after(one: ast.Call, other: ast.Call) -> bool:
    return (one.lineno, one.col_offset) > (other.lineno, other.col_offset)


def _is_scaled(script: Script, op: Operation) -> bool:
    made = script.ranges.operation(script.ranges.follow(op.subject))
    return made is not None and made.name == "scale"


def _is_scaler_step(op: Operation) -> bool:
    return op.subject is not None and "scaler" in dotted(op.subject).lower() and len(op.rest) == 1


def _unscaled_twice(script: Script) -> Iterator[Hit]:
    calls = [node for node, op in script.called("unscale_") if "scaler" in dotted(op.subject or node).lower()]
    for first, second in pairwise(calls[:MOST]):
        same = ast.dump(first) == ast.dump(second) and script.scopes.function(first) is script.scopes.function(second)
        if not same or script.in_loop(first) is not script.in_loop(second) or script.are_exclusive(first, second):
            continue
        between = [call for call, op in script.called("update", "step") if _after(call, first) and _after(second, call)]
        if not between:
            yield Hit(UNSCALE_TWICE, second, f"unscaled in line {first.lineno} already")
