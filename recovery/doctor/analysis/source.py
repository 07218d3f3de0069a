"""Parses the bytes of a script into a syntax tree, within bounds. The script is never run."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass

from rung.jobs.model.terminal_text import clean

# Twice the longest module of torch and transformers; a longer file is data or hostile.
MAX_BYTES = 1_000_000
MAX_NODES = 250_000
# A chain of 100 `elif` is 100 deep. With this limit, all walks in this package stay within Python's limit of 1000.
MAX_DEPTH = 200
_SHARED = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


class Unreadable(Exception):
    """A text cannot be parsed as Python; has the reason in one line, and the line number where it is known."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(f"{line}: {what}" if line else what)
        self.line = line


@dataclass(frozen=True)
class Source:
    """The tree of a script, the parent of each node (in order of depth), and its lines."""

    tree: ast.Module
    parents: dict[ast.AST, ast.AST]
    lines: tuple[str, ...]


def parse(raw: bytes) -> Source:
    """Return the tree and the lines of a script; for any bytes, the only error is `Unreadable`."""
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
            # Python warns about bad escapes in the script.
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
    """Return the parent of every node, level by level; a tree that is too large or too deep is refused."""
    parents: dict[ast.AST, ast.AST] = {}
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        below: list[ast.AST] = []
        for node in level:
            for child in ast.iter_child_nodes(node):
                # One object for a context or an operator is shared by the whole tree, so it has no parent.
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
