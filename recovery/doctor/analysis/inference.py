"""Infers the range of values of an expression from its syntax tree and the names in it."""

from __future__ import annotations

import ast

from rung.recovery.doctor.analysis.import_names import NUMBERS, Names, Operation, dotted
from rung.recovery.doctor.analysis.scope import Scopes
from rung.recovery.doctor.analysis.torch_ops import (
    CLAMPS,
    COUNTS,
    KEEPS,
    LAYERS,
    MAXIMA,
    PLAIN,
    range_by_name,
    range_of_operation,
)
from rung.recovery.doctor.analysis.value_range import COUNT, INF, NUMBER, UNKNOWN, ValueRange, constant

# How many assignments are followed, and how deep an expression is examined.
STEPS = 3
DEPTH = 25


class RangeInference:
    """Infers the ranges of the expressions in one script. Each is computed once."""

    def __init__(self, names: Names, scopes: Scopes) -> None:
        self.names = names
        self.scopes = scopes
        self._cache: dict[tuple[ast.expr, int], ValueRange] = {}

    def range_of(self, node: ast.expr | None, steps: int = STEPS, depth: int = DEPTH) -> ValueRange:
        """Return the range of an expression."""
        if node is None or depth == 0:
            return UNKNOWN
        key = (node, steps)
        if key not in self._cache:
            # Unknown at first, for a value that depends on itself in a loop.
            self._cache[key] = UNKNOWN
            self._cache[key] = self._infer(node, steps, depth - 1)
        return self._cache[key]

    def follow(self, node: ast.expr | None, steps: int = STEPS) -> ast.expr | None:
        """Return the expression that was assigned to a name, or the node itself when there is none."""
        while steps and node is not None:
            value = self._value(node)
            if value is None:
                return node
            node, steps = value, steps - 1
        return node

    def operation(self, node: ast.expr | None) -> Operation | None:
        """Return the operation of a call, also of a layer that is an attribute of `self`."""
        if not isinstance(node, ast.Call):
            return None
        maker = self.follow(node.func, 1) if isinstance(node.func, (ast.Attribute, ast.Name)) else node.func
        if isinstance(maker, ast.Call):
            layer = self.names.full(maker.func).rpartition(".")[2]
            if layer in LAYERS:
                name = {"LogSoftmax": "log_softmax"}.get(layer, layer.lower())
                return Operation(name, "torch", node.args[0] if node.args else None, (), {})
        return self.names.operation(node)

    def _value(self, node: ast.expr) -> ast.expr | None:
        if isinstance(node, ast.Name):
            return self.scopes.value(node)
        return self.scopes.attribute(node) if isinstance(node, ast.Attribute) else None

    def _infer(self, node: ast.expr, steps: int, depth: int) -> ValueRange:
        if isinstance(node, ast.Constant):
            return constant(node.value)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._range_of_name(node, steps, depth)
        if isinstance(node, ast.UnaryOp):
            inner = self.range_of(node.operand, steps, depth)
            return inner.negated() if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp):
            return self._range_of_binary(node, steps, depth)
        if isinstance(node, ast.Subscript):
            return self._range_of_item(node, steps, depth)
        if isinstance(node, ast.Compare):
            return ValueRange(0.0, 1.0, "unknown", "comparison")
        if isinstance(node, ast.Call):
            return self._range_of_call(node, steps, depth)
        if isinstance(node, ast.IfExp):
            return self.range_of(node.body, steps, depth).joined(self.range_of(node.orelse, steps, depth))
        return UNKNOWN

    def _range_of_name(self, node: ast.Name | ast.Attribute, steps: int, depth: int) -> ValueRange:
        value = self._value(node) if steps else None
        if value is not None:
            known = self.range_of(value, steps - 1, depth)
            if known != UNKNOWN:
                return known
        if self.names.full(node).partition(".")[0] in NUMBERS:
            return NUMBER
        if isinstance(node, ast.Attribute) and node.attr in ("ndim", "batch_size", "world_size"):
            return COUNT
        return range_by_name(node.id if isinstance(node, ast.Name) else node.attr)

    def _range_of_item(self, node: ast.Subscript, steps: int, depth: int) -> ValueRange:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            return COUNT
        return self.range_of(node.value, steps, depth)

    def _range_of_binary(self, node: ast.BinOp, steps: int, depth: int) -> ValueRange:
        left, right = self.range_of(node.left, steps, depth), self.range_of(node.right, steps, depth)
        if isinstance(node.op, ast.Add):
            return left.plus(right)
        if isinstance(node.op, ast.Sub):
            return self._range_of_difference(node, left, right)
        if isinstance(node.op, ast.Mult):
            if ast.dump(node.left) == ast.dump(node.right):
                return left.to_the(2)
            return left.times(right)
        if isinstance(node.op, ast.Div):
            return left.over(right)
        if isinstance(node.op, ast.Pow):
            return left.to_the(right.low) if right.low == right.high else ValueRange(kind=left.kind)
        if isinstance(node.op, ast.FloorDiv):
            return NUMBER
        return UNKNOWN

    def _range_of_difference(self, node: ast.BinOp, left: ValueRange, right: ValueRange) -> ValueRange:
        if "max" in dotted(_receiver(node.right)).lower() or self._is_maximum(node.right):
            return ValueRange(-INF, 0.0, left.kind, "less its maximum")
        return left.minus(right)

    def _is_maximum(self, node: ast.expr) -> bool:
        """Return whether a value is a maximum, also after changes of shape: x.max(-1, keepdim=True).values.detach()."""
        for _ in range(6):
            made = self.follow(node)
            if isinstance(made, (ast.Attribute, ast.Subscript)):
                node = made.value
                continue
            op = self.operation(made)
            if op is None or op.subject is None:
                return False
            if op.name in MAXIMA:
                return True
            if op.name not in KEEPS:
                return False
            node = op.subject
        return False

    def _range_of_call(self, node: ast.Call, steps: int, depth: int) -> ValueRange:
        op = self.operation(node)
        if op is None:
            return UNKNOWN
        if op.name in COUNTS:
            return COUNT
        if op.home == "python" or op.name in PLAIN:
            return NUMBER
        subject = self.range_of(op.subject, steps, depth)
        if op.name.rstrip("_") in CLAMPS:
            return self._range_of_clamp(op, subject, steps, depth)
        return range_of_operation(op, subject)

    def _range_of_clamp(self, op: Operation, subject: ValueRange, steps: int, depth: int) -> ValueRange:
        bare = op.name.rstrip("_")
        low = op.argument(0, "min") if bare != "clamp_max" else None
        high = op.argument(1 if bare != "clamp_max" else 0, "max")
        least, most = self.range_of(low, steps, depth), self.range_of(high, steps, depth)
        bottom = subject.low if low is None or _is_none(low) else max(subject.low, least.low if least.origin else 1e-6)
        top = subject.high if high is None or _is_none(high) else min(subject.high, most.high if most.origin else 1.0)
        kind = subject.kind if subject.kind != "number" else "unknown"
        return ValueRange(bottom, max(top, bottom), kind, "clamp")


def _receiver(node: ast.expr) -> ast.expr:
    """Return the start of a chain of methods: x of x.detach().unsqueeze(-1)."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return node


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def source_text(node: ast.AST) -> str:
    """Return the source text of an expression, cut to fit on a line."""
    try:
        text = ast.unparse(node)
    except (ValueError, RecursionError):
        return "..."
    return text if len(text) <= 60 else f"{text[:57]}..."
