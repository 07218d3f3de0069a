"""Finds out whether a name in a pickle is a class of the job's own code, from its source and without importing it.

A job may load its own classes from its own checkpoint: that runs nothing that the job does not run anyway. But its code
also has functions, and modules that it imports; a pickle must not reach those.
"""

from __future__ import annotations

import _compat_pickle
import ast
import importlib.util
import os
import re
import sys
from typing import Iterator

# The name is defined as a class in the source.
CLASS = "class"
# The same, and objects of it are pickled as a call of it: enums, exceptions, some containers, and what says so itself.
CALLED_CLASS = "called class"
# The name is anything else in the source: imported, a function, another name for something, or not there at all.
FOREIGN = "foreign"
# The source cannot be found.
UNKNOWN = "unknown"

ENUM = ("Enum", "Flag")
# How the names of base classes end whose objects are pickled as a call, and such names in full.
CALLED_ENDINGS = (*ENUM, "Error", "Exception", "Warning")
CALLED_BASES = (
    "set", "frozenset", "bytearray", "deque", "OrderedDict", "defaultdict", "Counter", "Decimal", "Fraction", "date",
    "datetime", "timedelta", "Path", "PosixPath",
)  # fmt: skip
REDUCE = ("__reduce__", "__reduce_ex__")
MAIN = ("__main__", "__mp_main__")
# What Rung itself puts into a job.
OURS = ("rung_inside", "sitecustomize", "rung")
# The command of the job, which the controller passes on: it names the script.
COMMAND = "RUNG_RUN"
SCRIPT = re.compile(r"[\w./~+=@-]+\.py\b")
MODULE = re.compile(r"-m[ =]?([\w.]+)")
LARGEST_SOURCE = 4_000_000
# Names of Python 2 modules, which a pickle maps to modules of Python 3.
OLD_NAMES = {name.partition(".")[0] for name in _compat_pickle.IMPORT_MAPPING}


def is_of_the_job(module: str) -> bool:
    """Return whether a module is the script, lies beside it, or cannot be found here. It is not imported."""
    top = module.partition(".")[0]
    if module in MAIN:
        return True
    if top in OLD_NAMES or top in OURS or not all(part.isidentifier() for part in module.split(".")):
        return False
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return False
    if spec is None:
        return True
    places = [place for place in (spec.origin, *(spec.submodule_search_locations or ())) if place]
    return bool(places) and not any(_installed(os.path.realpath(place)) for place in places)


def _installed(path: str) -> bool:
    """Return whether a file is of Python, of an installed package, or does not exist."""
    standard = os.path.dirname(os.path.realpath(os.__file__)) + os.sep
    packages = {"site-packages", "dist-packages"} & set(path.split(os.sep))
    return bool(packages) or path.startswith(standard) or not os.path.exists(path)


def kind_in_source(module: str, name: str) -> str:
    """Return what a name is in the source of a module of the job: a class, something foreign, or unknown."""
    parts = name.split(".")
    tree = _tree(module)
    if tree is None:
        # An attribute of an unknown name could be anything that the script has imported.
        return UNKNOWN if len(parts) == 1 and name.isidentifier() else FOREIGN
    found = _class(tree, parts)
    if found is None:
        return FOREIGN
    says_so = any(isinstance(node, ast.FunctionDef) and node.name in REDUCE for node in found.body)
    return CALLED_CLASS if says_so or _has_base(tree, found, CALLED_ENDINGS, CALLED_BASES) else CLASS


def is_member(module: str, name: str, attribute: str) -> bool:
    """Return whether an attribute is a member of an enum in the source of a module of the job."""
    tree = _tree(module)
    found = None if tree is None else _class(tree, name.split("."))
    if tree is None or found is None or attribute.startswith("_") or not _has_base(tree, found, ENUM):
        return False
    return any(
        isinstance(target, ast.Name) and target.id == attribute
        for node in found.body
        if isinstance(node, ast.Assign)
        for target in node.targets
    )


def _class(tree: ast.AST, parts: list[str]) -> ast.ClassDef | None:
    """Return a class of the source, also one inside a class; none if the name is also something else there."""
    if parts[0] in _imported(tree):
        return None
    place: ast.AST = tree
    for part in parts:
        found = [node for node in _statements(place) if part in _bound(node)]
        if not found or not all(isinstance(node, ast.ClassDef) for node in found):
            return None
        place = found[-1]
    return place if isinstance(place, ast.ClassDef) else None


def _imported(tree: ast.AST) -> set[str]:
    return {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }


def _statements(place: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module or a class, also those inside `if`, `try` and `with`."""
    for node in ast.iter_child_nodes(place):
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
            yield from _statements(node)


def _bound(node: ast.AST) -> set[str]:
    """Return the names that a statement defines."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return {node.name}
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For)):
        return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return set()


def _has_base(
    tree: ast.AST, found: ast.ClassDef, endings: tuple[str, ...], names: tuple[str, ...] = (), depth: int = 5
) -> bool:
    """Return whether a class, or a class of the same source below it, has a base whose name is one of these."""
    for base in found.bases:
        name = base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
        inner = _class(tree, [name]) if depth and name else None
        known = name.endswith(endings) or name in names
        if _has_base(tree, inner, endings, names, depth - 1) if inner else known:
            return True
    return False


def _tree(module: str) -> ast.AST | None:
    """Return the first source of a module that can be read."""
    for path in _sources(module):
        tree = _parsed(path)
        if tree is not None:
            return tree
    return None


def _sources(module: str) -> Iterator[str]:
    """Yield where the source of a module may be: the script itself, or beside the script, or where Python looks."""
    command = os.environ.get(COMMAND, "")
    scripts = [word for word in SCRIPT.findall(command) if os.path.isfile(word)]
    if module in MAIN:
        yield from scripts[:1]
        modules = MODULE.findall(command) if not scripts else []
        yield from (file for each in modules for file in _files(["."], each))
        return
    yield from _files([*(os.path.dirname(script) or "." for script in scripts[:1]), ".", *sys.path], module)


def _files(folders: list[str], module: str) -> Iterator[str]:
    inner = module.replace(".", os.sep)
    for folder in folders:
        for path in (f"{inner}.py", os.path.join(inner, "__init__.py")):
            if os.path.isfile(os.path.join(folder, path)):
                yield os.path.join(folder, path)


def _parsed(path: str) -> ast.AST | None:
    try:
        if os.path.getsize(path) > LARGEST_SOURCE:
            return None
        with open(path, "rb") as file:
            return ast.parse(file.read(LARGEST_SOURCE))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
