"""Reads which files of the repository import which others; for the tests of the architecture and the coverage map."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("jobs", "recovery", "runner")
# It has a list of modules, which it imports when their commands run.
LISTS_MODULES = ROOT / "runner" / "cli" / "main.py"


def product_files() -> list[Path]:
    """Return every file of the product, without the example trainings of the catalog."""
    files = [path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")]
    return sorted(path for path in files if path.relative_to(ROOT).parts[:2] != ("jobs", "catalog"))


def runs_in_the_job(path: Path) -> bool:
    return path.relative_to(ROOT).parts[:2] == ("jobs", "inside")


def module_of(path: Path) -> str:
    """Return the name by which a file is imported: below `rung`, `rung_inside` for the code in a job, or `tests`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if runs_in_the_job(path):
        parts = parts[2:]
    elif parts[0] != "tests":
        parts = ("rung", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path) -> Iterator[str]:
    """Yield every module a file names, also inside functions and under TYPE_CHECKING."""
    for node in _import_statements(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            assert node.level == 0, f"{path}: say the whole name in an import"
            yield str(node.module)


@functools.cache
def imported_files(path: Path) -> frozenset[Path]:
    """Return the files of this repository that a file imports itself."""
    modules, found = _modules(), set()
    for node in _import_statements(path):
        if isinstance(node, ast.Import):
            found |= {modules.get(alias.name) for alias in node.names}
        else:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {modules.get(name, modules.get(str(node.module))) for name in names}
    if path == LISTS_MODULES:
        found |= {modules.get(name) for name in _texts(path)}
    return frozenset(each for each in found if each is not None and each != path)


def _import_statements(path: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node


def _texts(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@functools.cache
def _modules() -> dict[str, Path]:
    return {module_of(path): path for path in (*product_files(), *(ROOT / "tests").rglob("*.py"))}
