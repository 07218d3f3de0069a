"""Tracks which value a name has at a place in a script, in one pass from top to bottom."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Place = tuple[int, int]
# None: a value is bound there that is not known.
Binding = tuple[Place, ast.expr | None]
# A number of unknown value.
SOME_NUMBER = ast.Constant(float("nan"))
# In-place methods that change the range of their tensor: `x.clamp_(min=eps)`.
IN_PLACE = frozenset({"clamp_", "clamp_min_", "clamp_max_", "add_", "relu_", "sigmoid_", "clip_"})


class Scopes:
    """The bindings of one script: by function, and by class for the attributes of `self`."""

    def __init__(self, tree: ast.Module, parents: dict[ast.AST, ast.AST]) -> None:
        self._tree = tree
        self._parents = parents
        self._bound: dict[ast.AST, dict[str, list[Binding]]] = defaultdict(lambda: defaultdict(list))
        self._attributes: dict[ast.AST, dict[str, list[ast.expr | None]]] = defaultdict(lambda: defaultdict(list))
        for node in list(parents):
            self._record(node)
        for names in self._bound.values():
            for bindings in names.values():
                bindings.sort(key=lambda binding: binding[0])

    def around(self, node: ast.AST, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """Yield the enclosing nodes, from the inside out; with kinds, only those."""
        while (parent := self._parents.get(node)) is not None:
            node = parent
            if not kinds or isinstance(node, kinds):
                yield node

    def function(self, node: ast.AST) -> ast.AST:
        """Return the function that contains a node, or the module."""
        return next(self.around(node, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda), self._tree)

    def value(self, name: ast.Name) -> ast.expr | None:
        """Return the expression that was last bound to a name before this use; None when it is not known."""
        scope = self.function(name)
        here = (name.lineno, name.col_offset)
        while True:
            bindings = self._bound[scope].get(name.id) if scope in self._bound else None
            if bindings:
                before = bisect_right(bindings, here, key=lambda binding: binding[0])
                if before:
                    return bindings[before - 1][1]
                if scope is self._tree or self.function(name) is not scope:
                    return bindings[0][1] if len(bindings) == 1 else None
                return None
            if scope is self._tree:
                return None
            scope = self.function(scope)

    def attribute(self, node: ast.Attribute) -> ast.expr | None:
        """Return the value of `self.name` when its class sets it exactly once."""
        owner = next(self.around(node, ast.ClassDef), None)
        if owner is None or not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            return None
        values = self._attributes[owner].get(node.attr, []) if owner in self._attributes else []
        return values[0] if len(values) == 1 else None

    def _record(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value, node)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._bind(node.target, node.value, node)
        elif isinstance(node, ast.AugAssign):
            self._augment(node)
        elif isinstance(node, ast.NamedExpr):
            self._bind(node.target, node.value, node)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._bind(node.target, None, node.target)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._bind(node.optional_vars, None, node.optional_vars)
        elif isinstance(node, ast.Expr):
            self._in_place(node)
        elif isinstance(node, Function):
            self._parameters(node)

    def _bind(self, target: ast.expr, value: ast.expr | None, at: ast.stmt | ast.expr) -> None:
        if isinstance(target, ast.Name):
            place = (at.end_lineno or at.lineno, at.end_col_offset or 0)
            self._bound[self.function(target)][target.id].append((place, value))
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            paired = len(values) == len(target.elts) and not any(isinstance(each, ast.Starred) for each in target.elts)
            for number, each in enumerate(target.elts):
                self._bind(each, values[number] if paired else None, at)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, None, at)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
            owner = next(self.around(target, ast.ClassDef), None)
            if owner is not None:
                self._attributes[owner][target.attr].append(value)

    def _augment(self, node: ast.AugAssign) -> None:
        """Treat `x += y` as x = x + y; the x on the right has its value from before this statement."""
        if isinstance(node.target, ast.Name):
            before = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
            value = ast.copy_location(ast.BinOp(before, node.op, node.value), node)
            self._parents[before] = node
            self._bind(node.target, value, node)
        else:
            self._bind(node.target, None, node)

    def _in_place(self, node: ast.Expr) -> None:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in IN_PLACE:
            self._bind(call.func.value, call, node)

    def _parameters(self, function: Function) -> None:
        start = (function.lineno, function.col_offset)
        args = function.args
        names = [*args.posonlyargs, *args.args, *args.kwonlyargs]
        names += [each for each in (args.vararg, args.kwarg) if each is not None]
        positional = [*args.posonlyargs, *args.args]
        pairs = [*zip(positional[len(positional) - len(args.defaults) :], args.defaults, strict=True)]
        pairs += [(name, value) for name, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value]
        defaults = {name.arg: value for name, value in pairs}
        for name in names:
            self._bound[function][name.arg].append((start, _parameter_value(name, defaults.get(name.arg))))


def _parameter_value(parameter: ast.arg, default: ast.expr | None) -> ast.expr | None:
    """Return the value of a parameter: its default for an eps, `SOME_NUMBER` for other numbers, else None."""
    if default is not None and "eps" in parameter.arg.lower():
        return default
    is_number = isinstance(default, ast.Constant) and isinstance(default.value, (int, float))
    annotation = parameter.annotation.id if isinstance(parameter.annotation, ast.Name) else ""
    return SOME_NUMBER if is_number or annotation in ("int", "float") else None
