"""Owns the house rules that a machine can check: who may import whom, and what each floor may touch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = ("jobs", "recovery", "runner")
# Each floor, and the floors it may stand on.
BELOW = {"jobs": {"jobs"}, "recovery": {"recovery", "jobs"}, "runner": {"runner", "recovery", "jobs"}}
PURE_MAY_USE = {
    *(
        "__future__",
        "array",
        "ast",
        "bisect",
        "collections",
        "dataclasses",
        "difflib",
        "enum",
        "functools",
        "heapq",
        "hyperscan",
    ),
    *(
        "itertools",
        "json",
        "math",
        "operator",
        "pathlib",
        "pydantic",
        "pydantic_core",
        "random",
        "re2",
        "re",
        "shlex",
        "statistics",
    ),
    *("types", "tomlkit"),
    *("typing", "warnings", "yaml", "jobs", "recovery"),
}
INSIDE_MAY_USE = set(sys.stdlib_module_names) | {"torch", "rung_inside"}
FILE_CALLS = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "exists", "is_file", "is_dir", "glob", "iterdir"),
    *("unlink", "rename", "mkdir", "touch", "stat", "resolve", "absolute", "cwd", "home"),
}


def product_files(*, runs_in_the_job: bool = False) -> list[Path]:
    files = [path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")]
    return sorted(path for path in files if in_the_job(path) is runs_in_the_job)


def in_the_job(path: Path) -> bool:
    return path.relative_to(ROOT).parts[:2] in (("jobs", "inside"), ("jobs", "catalog"))


def floor_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def imports(path: Path) -> Iterator[str]:
    """Yield every module a file names, also inside functions and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: say the whole name in an import"
            yield str(node.module)


def top(module: str) -> str:
    return module.partition(".")[0]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_floors_are_all_looked_at() -> None:
    assert {floor_of(path) for path in product_files()} == set(FLOORS)
    assert len(product_files()) > 30
    assert product_files(runs_in_the_job=True)


@pytest.mark.parametrize("path", product_files(), ids=name_of)
def test_imports_run_one_way(path: Path) -> None:
    ours = {top(module) for module in imports(path)} & {*FLOORS, "tests"}
    assert ours <= BELOW[floor_of(path)]


@pytest.mark.parametrize("path", [p for p in product_files() if floor_of(p) != "runner"], ids=name_of)
def test_pure_floors_touch_no_clock_disk_process_or_network(path: Path) -> None:
    assert {top(module) for module in imports(path)} <= PURE_MAY_USE
    tree = ast.parse(path.read_text(encoding="utf-8"))
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name))
    }
    allowed = {"read_bytes"} if name_of(path) == "jobs/specfile.py" else set()
    assert called & FILE_CALLS == allowed


@pytest.mark.parametrize("path", product_files(), ids=name_of)
def test_no_product_file_outside_the_job_imports_torch_or_pickle(path: Path) -> None:
    assert not {top(module) for module in imports(path)} & {"torch", "numpy", "pickle", "safetensors", "rung_inside"}


@pytest.mark.parametrize("path", sorted((ROOT / "jobs" / "inside").rglob("*.py")), ids=name_of)
def test_the_code_inside_a_job_needs_only_the_standard_library_torch_and_an_old_python(path: Path) -> None:
    assert {top(module) for module in imports(path)} <= INSIDE_MAY_USE
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_no_file_has_a_name_that_says_nothing() -> None:
    empty = {"utils", "util", "common", "core", "manager", "base", "helpers", "misc"}
    files = [*product_files(), *product_files(runs_in_the_job=True), *(ROOT / "tests").rglob("*.py")]
    assert [name_of(path) for path in files if path.stem.removeprefix("test_") in empty] == []


@pytest.mark.parametrize("path", product_files(), ids=name_of)
def test_every_product_file_says_what_it_owns(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(text)) or ""
    assert said.startswith("Owns ") if text else path.name == "__init__.py"


def loaded_after(code: str) -> set[str]:
    command = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    return set(done.stdout.split())


REMOTE = {"paramiko", "fabric", "docker", "cryptography", "requests"}


def test_the_controller_never_loads_torch() -> None:
    modules = loaded_after("import runner.cli, runner.desk, runner.controller, runner.ssh")
    assert {"runner.desk", "pydantic", "paramiko"} <= modules
    assert not {"torch", "numpy"} & modules


def test_jobs_that_run_here_load_nothing_of_what_remote_hosts_need() -> None:
    modules = loaded_after("import runner.cli, runner.desk, runner.controller, runner.process")
    assert "runner.desk" in modules
    assert not REMOTE & modules


def test_help_loads_neither_pydantic_nor_torch() -> None:
    code = "import contextlib, io, runner.cli\nwith contextlib.redirect_stdout(io.StringIO()) as said:\n"
    code += "    sys.argv = ['rung', '--help']\n    runner.cli.main()\nassert 'launch' in said.getvalue()"
    modules = loaded_after(code)
    assert "click" in modules
    assert not {"pydantic", "torch", "yaml", "sqlite3", "tenacity", *REMOTE} & modules
