"""Tests that every module has a test: in the file of the same name, or by a line of `tests/coverage_map.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.support.import_graph import ROOT, imported_files, product_files

MAP = {
    key: value
    for table in tomllib.loads((ROOT / "tests" / "coverage_map.toml").read_text(encoding="utf-8")).values()
    for key, value in table.items()
}
# The installed command and the code in a job run in their own processes, so no test imports them.
RUN_NOT_IMPORTED = (
    "jobs/inside/",
    "runner/cli",
    "runner/session",
    "runner/views",
    "runner/preflight",
    "runner/engine_pool",
)


def modules() -> list[str]:
    names = [path.relative_to(ROOT).with_suffix("").as_posix() for path in product_files()]
    return [name for name in names if not name.endswith(("/__init__", "/__main__"))]


def mirror_of(module: str) -> str:
    folder, _, name = module.replace("jobs/inside/rung_inside", "jobs/inside").rpartition("/")
    return f"tests/{folder}/test_{name}.py"


def entry_of(module: str) -> str | None:
    """Return the line of the map for a module: its own, or that of the nearest folder around it."""
    while module not in MAP and "/" in module:
        module = module.rpartition("/")[0]
    return module if module in MAP else None


def reached_from(test: Path) -> set[Path]:
    """Return all files that a test imports, directly or through others; its conftest files count as part of it."""
    waiting = [test, *(folder / "conftest.py" for folder in test.parents if (folder / "conftest.py").is_file())]
    seen: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file not in seen:
            seen.add(file)
            waiting += imported_files(file)
    return seen


@pytest.mark.parametrize("module", modules())
def test_every_module_has_a_test_of_its_name_or_a_line_in_the_map(module: str) -> None:
    if (ROOT / mirror_of(module)).is_file():
        return
    entry = entry_of(module)
    assert entry is not None, f"write {mirror_of(module)}, or name its test in tests/coverage_map.toml"
    test = ROOT / MAP[entry]
    assert test.is_file()
    if not module.startswith(RUN_NOT_IMPORTED):
        assert ROOT / f"{module}.py" in reached_from(test), f"{MAP[entry]} does not import {module}"


@pytest.mark.parametrize("entry", MAP)
def test_every_line_of_the_map_is_used(entry: str) -> None:
    assert entry in {entry_of(module) for module in modules() if not (ROOT / mirror_of(module)).is_file()}
