"""Parses the bytes of a script into a syntax tree, within bounds. The script is never run."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass

from rung.jobs.model.terminal_text import clean

# The longest module of torch and transformers has half of it; what is longer is data, or made to hurt.
MAX_BYTES = 1_000_000
MAX_NODES = 250_000
# A chain of 100 `elif` is 100 deep. All walks below this package stay within Python's own limit of 1000 with it.
MAX_DEPTH = 200
_SHARED = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


class Unreadable(Exception):
    """Says in one line why a text cannot be read as Python, and in which line of it, where that is known."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(f"{line}: {what}" if line else what)
        self.line = line


@dataclass(frozen=True)
class Source:
    """A script's tree, the parent of each of its nodes (in order of depth), and its lines."""

    tree: ast.Module
    parents: dict[ast.AST, ast.AST]
    lines: tuple[str, ...]


def parse(raw: bytes) -> Source:
    """Return a script's tree and lines; whatever the bytes are, the only error is `Unreadable`."""
    if len(raw) > MAX_BYTES:
        raise Unreadable(f"{len(raw)} bytes; scripts of up to {MAX_BYTES} are read")
    tree = _tree(raw)
    text = raw.decode("utf-8", "replace")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return Source(tree, _parents(tree), tuple(lines))


def _tree(raw: bytes) -> ast.Module:
    try:
        text = raw.decode("utf-8-sig")
        with warnings.catch_warnings():
            # A script's bad escapes are not our subject.
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Unreadable("not UTF-8 text; save it as UTF-8", line) from None
    except SyntaxError as error:
        raise Unreadable(f"syntax error: {clean(str(error.msg))[:200]}", error.lineno) from None
    except (RecursionError, MemoryError):
        raise Unreadable("nested too deeply to be read") from None
    except ValueError as error:
        raise Unreadable(f"syntax error: {clean(str(error))[:200]}") from None


def _parents(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    """Return the parent of every node, level by level; a tree made to hurt is refused on the way."""
    parents: dict[ast.AST, ast.AST] = {}
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        below: list[ast.AST] = []
        for node in level:
            for child in ast.iter_child_nodes(node):
                # Contexts and operators are shared by all the tree, and say nothing by themselves.
                if not isinstance(child, _SHARED):
                    parents[child] = node
                    below.append(child)
        if not below:
            return parents
        if len(parents) > MAX_NODES:
            raise Unreadable(f"more than {MAX_NODES} parts; scripts are shorter")
        level = below
    line = next((node.lineno for node in level if isinstance(node, (ast.expr, ast.stmt))), 0)
    raise Unreadable(f"nested more than {MAX_DEPTH} levels deep", line)
