"""Rules on parameters and on the inputs of embeddings."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rung.recovery.doctor.analysis.import_names import dotted
from rung.recovery.doctor.analysis.inference import source_text
from rung.recovery.doctor.analysis.script import Script, is_literal
from rung.recovery.doctor.analysis.value_range import INF
from rung.recovery.doctor.rules.rule import IN_FP32, Hit, Rule, Severity

RAND_AS_PARAMETER = Rule(
    "rand-as-parameter",
    "torch.rand(..., requires_grad=True) as a parameter",
    "it is no nn.Parameter: parameters(), .to() and state_dict() pass it by; and rand begins with all values positive",
    "nn.Parameter(torch.empty(...)) with nn.init.xavier_normal_",
    Severity.WARNING,
    Severity.WARNING,
)
RELU_INTO_EMBEDDING = Rule(
    "relu-into-embedding",
    "a ReLU projection of unbounded inputs, summed with an embedding",
    "nothing bounds a ReLU from above: raw inputs grow beyond 65504 in the projection, also where a norm follows",
    f"clamp or normalise the inputs (x.clamp(0, 1)), use GELU, and clamp the sum; {IN_FP32}",
    Severity.WARNING,
    None,
)
RULES = (RAND_AS_PARAMETER, RELU_INTO_EMBEDDING)
RANDOM = ("rand", "randn", "rand_like", "randn_like", "empty")
LIMITING = ("clamp", "clip", "tanh", "sigmoid", "softmax", "normalize", "layer_norm", "hardtanh")


def check(script: Script) -> Iterator[Hit]:
    """Yield random tensors in place of parameters, and unbounded values that are added to an embedding."""
    yield from _random(script)
    yield from _sums(script)


def _random(script: Script) -> Iterator[Hit]:
    makers = (node for node, _ in script.calls if "optim." in script.names.full(node.func))
    trained = {dotted(part) for node in makers for part in ast.walk(node)} - {""}
    for node, op in script.called(*RANDOM):
        holder = script.parent(node)
        if op.home != "torch" or not is_literal(op.keywords.get("requires_grad"), True):
            continue
        # Stored in a module or passed to an optimizer; anything else is an input that needs a gradient.
        name = dotted(holder.targets[0]) if isinstance(holder, ast.Assign) else _name_of_result(script, holder)
        if name.startswith("self.") or name in trained:
            yield Hit(RAND_AS_PARAMETER, node, f"{name} is torch.{op.name}(requires_grad=True)")


def _name_of_result(script: Script, node: ast.AST | None) -> str:
    """Return the name that the result of the enclosing function is assigned to: `self.table = new_table(...)`."""
    maker = script.scopes.function(node) if isinstance(node, ast.Return) else None
    if not isinstance(maker, ast.FunctionDef):
        return ""
    holders = (script.parent(call) for call, _ in script.called(maker.name))
    return next((dotted(each.targets[0]) for each in holders if isinstance(each, ast.Assign)), "")


def _sums(script: Script) -> Iterator[Hit]:
    for node in script.nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            for side, other in ((node.left, node.right), (node.right, node.left)):
                if _is_embedding(script, other) and _is_unbounded(script, side) and not _is_limited(script, node):
                    yield Hit(RELU_INTO_EMBEDDING, node, f"{source_text(node)}: nothing bounds {source_text(side)}")


def _layer(script: Script, node: ast.expr | None) -> tuple[str, ast.Call | None, ast.expr | None]:
    """Return the class of the layer that is called, the call that created it, and its input."""
    node = script.ranges.follow(node)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return "", None, None
    made = script.scopes.attribute(node.func)
    if not isinstance(made, ast.Call):
        return "", None, None
    return script.names.full(made.func).rpartition(".")[2], made, node.args[0] if node.args else None


def _is_embedding(script: Script, node: ast.expr) -> bool:
    made = script.scopes.attribute(node) if isinstance(node, ast.Attribute) else None
    if isinstance(made, ast.Call):
        return script.names.full(made.func).endswith(".Parameter")
    return _layer(script, node)[0] == "Embedding"


def _is_unbounded(script: Script, node: ast.expr) -> bool:
    kind, made, layer_input = _layer(script, node)
    if kind == "Sequential" and made is not None:
        layers = [script.names.full(each.func).rpartition(".")[2] for each in made.args if isinstance(each, ast.Call)]
        return "ReLU" in layers and not _bounded(script, layer_input)
    op = script.ranges.operation(script.ranges.follow(node))
    if op is not None and op.name == "relu":
        return not _bounded(script, op.subject)
    return _projects_raw_inputs(script, node)


def _projects_raw_inputs(script: Script, node: ast.expr) -> bool:
    """Return whether layers wrap relu(linear(x)), where x is an unbounded argument of the function."""
    inner: ast.expr | None = node
    for _ in range(6):
        op = script.ranges.operation(script.ranges.follow(inner))
        if op is not None and op.name == "relu":
            kind, _, layer_input = _layer(script, op.subject)
            return kind == "Linear" and _is_argument(script, layer_input) and not _bounded(script, layer_input)
        inner = _layer(script, inner)[2]
    return False


def _is_argument(script: Script, node: ast.expr | None) -> bool:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    function = script.scopes.function(node) if node is not None else None
    names = [each.arg for each in function.args.args] if isinstance(function, ast.FunctionDef) else []
    return isinstance(node, ast.Name) and node.id in names and script.scopes.value(node) is None


def _bounded(script: Script, node: ast.expr | None) -> bool:
    values = script.ranges.range_of(node)
    return values.low > -INF and values.high < INF


def _is_limited(script: Script, node: ast.expr) -> bool:
    """Return whether the sum goes directly into a clamp or a norm."""
    outer = script.parent(node)
    if isinstance(outer, ast.Attribute):
        outer = script.parent(outer)
    if not isinstance(outer, ast.Call):
        return False
    name = dotted(outer.func).rpartition(".")[2].lower()
    return "norm" in name or name in LIMITING or (isinstance(outer.func, ast.Attribute) and outer.func.attr in LIMITING)
