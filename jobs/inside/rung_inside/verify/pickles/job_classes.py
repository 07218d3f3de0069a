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
# The name comes from elsewhere: it is imported, or an attribute of something that is no class of the source.
FOREIGN = "foreign"
# The source cannot be found, or does not say what the name is.
UNKNOWN = "unknown"

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
    """Return what a name is in the source of a module of the job: CLASS, FOREIGN or UNKNOWN."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return FOREIGN
    for path in _sources(module):
        tree = _parsed(path)
        if tree is not None:
            return _kind(tree, parts)
    # An attribute of an unknown name could be anything that the script has imported.
    return UNKNOWN if len(parts) == 1 else FOREIGN


def _kind(tree: ast.AST, parts: list[str]) -> str:
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    if parts[0] in imported:
        return FOREIGN
    place = tree
    for part in parts:
        classes = [node for node in ast.iter_child_nodes(place) if isinstance(node, ast.ClassDef) and node.name == part]
        if not classes:
            return UNKNOWN if len(parts) == 1 else FOREIGN
        place = classes[-1]
    return CLASS


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
