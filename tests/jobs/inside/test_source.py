"""Tests that the code in a job is Python 3.8 and uses only the standard library, torch and itself."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import rung_inside

from tests import pace

FOLDER = Path(rung_inside.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))
ALLOWED = {*sys.stdlib_module_names, "torch", "rung_inside"}


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "say where it comes from"
            yield node.module or ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_code_in_a_job_is_python_3_8_and_needs_only_torch(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    assert {name.split(".")[0] for name in imports(tree)} <= ALLOWED


@pytest.mark.parametrize("path", [each for each in FILES if each.name != "wrapper.py"], ids=lambda path: path.name)
def test_annotations_are_not_evaluated(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not text or "from __future__ import annotations" in text


def test_importing_the_package_does_not_import_torch() -> None:
    names = "rung_inside, rung_inside.verify, rung_inside.contract.asked_knobs"
    code = f"import sys, {names}; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parent)}
    assert pace.run([sys.executable, "-c", code], env=environment, check=False, usual=60).returncode == 0
