"""Resolves the names of a script: the import of a name, and the operation of a call.

`torch.log(x)`, `th.log(x)`, `log(x)` after an import, and `x.log()` are one operation.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Home = Literal["torch", "method", "python", "other"]
# These compute with Python numbers or FP32 and FP64 arrays, whatever the model's precision is.
NUMBERS = frozenset(
    {"math", "cmath", "numpy", "scipy", "pandas", "statistics", "random", "jax", "tensorflow", "sklearn"}
)
BUILTINS = frozenset({"len", "int", "float", "abs", "min", "max", "sum", "round", "pow", "range"})


@dataclass(frozen=True)
class Operation:
    """A call, split into the operation and its arguments."""

    name: str
    home: Home
    # The object of a method, or the first argument of a function.
    subject: ast.expr | None
    rest: tuple[ast.expr, ...]
    keywords: Mapping[str, ast.expr]

    def argument(self, place: int, name: str) -> ast.expr | None:
        """Return the argument at this place after the subject, or with this name."""
        return self.rest[place] if place < len(self.rest) else self.keywords.get(name)


class Names:
    """The imports of one script."""

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self._full: dict[str, str] = {}
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    self._full[bound] = alias.name if alias.asname else bound
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                self._full.update({alias.asname or alias.name: f"{module}.{alias.name}" for alias in node.names})

    @property
    def modules(self) -> frozenset[str]:
        return frozenset(self._full.values())

    def full(self, node: ast.AST) -> str:
        """Return the dotted name that an expression stands for, through its import; empty when it has none."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._full:
            return ""
        return ".".join([self._full[node.id], *reversed(parts)])

    def operation(self, call: ast.Call) -> Operation | None:
        """Return the operation of a call; None when what is called has no name."""
        keywords = {word.arg: word.value for word in call.keywords if word.arg}
        positional = [value for value in call.args if not isinstance(value, ast.Starred)]
        full = self.full(call.func)
        if full:
            name = full.rpartition(".")[2]
            subject = positional[0] if positional else keywords.get("input", keywords.get("self"))
            return Operation(name, _home(full), subject, tuple(positional[1:]), keywords)
        if isinstance(call.func, ast.Attribute):
            return Operation(call.func.attr, "method", call.func.value, tuple(positional), keywords)
        if isinstance(call.func, ast.Name):
            home: Home = "python" if call.func.id in BUILTINS else "other"
            subject = positional[0] if positional else None
            return Operation(call.func.id, home, subject, tuple(positional[1:]), keywords)
        return None


def _home(full: str) -> Home:
    root = full.partition(".")[0]
    return "torch" if root == "torch" else "python" if root in NUMBERS else "other"


def dotted(node: ast.AST) -> str:
    """Return an expression of names and dots as written, such as self.model; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
