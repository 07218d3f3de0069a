"""Represents one script for the rules: its syntax tree, its enclosing nodes, and the ranges of its expressions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from rung.recovery.doctor.analysis.import_names import Names, Operation, dotted
from rung.recovery.doctor.analysis.inference import RangeInference
from rung.recovery.doctor.analysis.scope import Scopes
from rung.recovery.doctor.analysis.source import parse

LOOPS = (ast.For, ast.AsyncFor, ast.While)
_TRAINED = re.compile(r"loss|forward|criterion|training_step|objective", re.IGNORECASE)
_DATA = re.compile(r"data|batch|make_|load|generate|synth|collate|augment|preprocess|corpus|rows|sample", re.IGNORECASE)
_MODULES = re.compile(r"Module|Loss|Layer|Block|Model|Attention|Norm|Encoder|Decoder|Net")
CASTS = frozenset({"float", "double"})


class Script:
    """A parsed script."""

    def __init__(self, raw: bytes) -> None:
        source = parse(raw)
        self.tree, self.lines, self._parents = source.tree, source.lines, source.parents
        self.nodes: tuple[ast.AST, ...] = (self.tree, *self._parents)
        self.names = Names(self.nodes)
        self.scopes = Scopes(self.tree, self._parents)
        self.ranges = RangeInference(self.names, self.scopes)
        self._words: dict[ast.expr, frozenset[str]] = {}

    @cached_property
    def calls(self) -> tuple[tuple[ast.Call, Operation], ...]:
        """Every call with its operation, in the order of the file."""
        found = [(node, self.ranges.operation(node)) for node in self.nodes if isinstance(node, ast.Call)]
        found.sort(key=lambda pair: (pair[0].lineno, pair[0].col_offset))
        return tuple((node, op) for node, op in found if op is not None)

    @cached_property
    def uses_torch(self) -> bool:
        roots = ("torch", "lightning", "pytorch_lightning", "transformers", "accelerate")
        return any(module.partition(".")[0] in roots for module in self.names.modules)

    @cached_property
    def trains(self) -> bool:
        """Whether the file has a backward pass or the training step of a framework."""
        functions = (node.name for node in self.nodes if isinstance(node, ast.FunctionDef))
        return "backward" in self._by_name or any(name in ("training_step", "compute_loss") for name in functions)

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(node)

    def called(self, *names: str) -> Iterator[tuple[ast.Call, Operation]]:
        """Yield the calls of each of these names, in the order of the file."""
        return (pair for name in names for pair in self._by_name.get(name, ()))

    @cached_property
    def _by_name(self) -> dict[str, list[tuple[ast.Call, Operation]]]:
        found: dict[str, list[tuple[ast.Call, Operation]]] = {}
        for pair in self.calls:
            found.setdefault(pair[1].name, []).append(pair)
        return found

    def names_in(self, node: ast.expr) -> frozenset[str]:
        """Return the names in an expression, as dotted names and as their last words. Cached."""
        if node not in self._words:
            parts = [part for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))]
            last = {part.id if isinstance(part, ast.Name) else part.attr for part in parts}
            self._words[node] = frozenset(last | set(map(dotted, parts)) - {""})
        return self._words[node]

    def in_loop(self, node: ast.AST) -> ast.AST | None:
        """Return the innermost loop around a node within its function."""
        function = self.scopes.function(node)
        for outer in self.scopes.around(node):
            if outer is function:
                return None
            if isinstance(outer, LOOPS):
                return outer
        return None

    def are_exclusive(self, one: ast.AST, other: ast.AST) -> bool:
        """Return whether two nodes are in different branches of one `if`, so that only one of them runs."""
        branches = dict(self.branches(one))
        return any(outer in branches and branches[outer] != branch for outer, branch in self.branches(other))

    def branches(self, node: ast.AST) -> Iterator[tuple[ast.If, str]]:
        """Yield each `if` around a node, from the inside out, and the branch it is in: then or else."""
        inner_node = node
        for outer in self.scopes.around(node):
            if isinstance(outer, ast.If):
                yield outer, "else" if outer.orelse and _place(inner_node) >= _place(outer.orelse[0]) else "then"
            inner_node = outer

    def is_without_gradients(self, node: ast.AST) -> bool:
        """Return whether a node is under no_grad or inference_mode."""
        for outer in self.scopes.around(node):
            found: list[ast.expr] = []
            if isinstance(outer, (ast.With, ast.AsyncWith)):
                found = [item.context_expr for item in outer.items]
            elif isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found = outer.decorator_list
            for each in found:
                name = dotted(each.func if isinstance(each, ast.Call) else each).rpartition(".")[2]
                if name in ("no_grad", "inference_mode"):
                    return True
        return False

    def in_fp32(self, node: ast.AST) -> bool:
        """Return whether autocast is off here, or a value in the expression was cast to FP32 or FP64."""
        for inner in ast.walk(node):
            made = self.scopes.value(inner) if isinstance(inner, ast.Name) else inner
            while made is not None:
                if self._is_cast(made):
                    return True
                # Go from each method of a chain to the object before it.
                method = made.func if isinstance(made, ast.Call) else None
                made = method.value if isinstance(method, ast.Attribute) else None
        return self._autocast_is_off(node)

    def is_untrained(self, node: ast.AST) -> bool:
        """Return whether no gradient goes through here: under no_grad, in numpy, or outside of the training."""
        untrained = self.is_without_gradients(node) or self.scopes.function(node) in self._in_numpy
        return untrained or not self._may_be_trained(node)

    def _may_be_trained(self, node: ast.AST) -> bool:
        """Return whether a gradient can go through here: in a module or a loss, or in a file with a backward pass."""
        for outer in self.scopes.around(node, ast.ClassDef, ast.FunctionDef):
            if isinstance(outer, ast.FunctionDef) and _TRAINED.search(outer.name):
                return True
            if isinstance(outer, ast.FunctionDef) and (outer in self._makes_data or _DATA.search(outer.name)):
                return False
            bases = outer.bases if isinstance(outer, ast.ClassDef) else []
            if any(_MODULES.search(dotted(base)) for base in bases):
                return True
        return self.trains

    @cached_property
    def _makes_data(self) -> frozenset[ast.AST]:
        """The functions that use a random generator of their own: they make data."""
        return frozenset(self.scopes.function(node) for node, op in self.calls if "generator" in op.keywords)

    @cached_property
    def _in_numpy(self) -> frozenset[ast.AST]:
        """The functions that call numpy and never torch."""
        numpy: set[ast.AST] = set()
        torch: set[ast.AST] = set()
        for node, op in self.calls:
            if op.home in ("python", "torch") and self.names.full(node.func):
                (torch if op.home == "torch" else numpy).add(self.scopes.function(node))
        return frozenset(numpy - torch - {self.tree})

    def _is_cast(self, node: ast.AST) -> bool:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)) or node.func.attr == "finfo":
            return False
        if node.func.attr in CASTS and not node.args:
            return True
        dtypes = [*node.args, *(word.value for word in node.keywords if word.arg == "dtype")]
        wide = ("torch.float32", "torch.float64", "torch.float", "torch.double")
        return any(self.names.full(each) in wide for each in dtypes)

    def _autocast_is_off(self, node: ast.AST) -> bool:
        for outer in self.scopes.around(node, ast.With, ast.AsyncWith):
            assert isinstance(outer, (ast.With, ast.AsyncWith))
            for call in (item.context_expr for item in outer.items):
                if isinstance(call, ast.Call) and dotted(call.func).endswith("autocast"):
                    return any(word.arg == "enabled" and is_literal(word.value, False) for word in call.keywords)
        return False


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def is_literal(node: ast.AST | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
