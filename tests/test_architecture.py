"""Checks the house rules that a machine can check: which folder may import which, and what each floor may touch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = ("jobs", "recovery", "runner")
# What may import what. A folder imports itself and the folders on the lines below its own; folders on one line never
# import each other. "." are the modules beside the folders.
ORDER: dict[str, list[tuple[str, ...]]] = {
    "jobs": [(".",), ("config_files",), ("spec",), ("model",)],
    "recovery": [("validation",), ("detect", "decide"), ("monitors",), ("signatures",), ("logs",)],
    "recovery/doctor": [(".",), ("rules",), ("analysis",)],
    "runner": [
        ("cli",),
        ("session",),
        ("controller", "preflight"),
        ("placement",),
        ("checkpoints", "validation"),
        (".", "views"),
        ("launch",),
        ("engines", "engines/docker"),
        ("hosts", "ssh", "files"),
        ("state",),
        ("seams",),
    ],
    "jobs/inside": [
        (".",),
        ("rung_inside",),
        ("rung_inside/zero_edit/frameworks",),
        ("rung_inside/zero_edit/telemetry",),
        ("rung_inside/zero_edit/replay",),
        ("rung_inside/zero_edit/hooks",),
        ("rung_inside/zero_edit/knobs", "rung_inside/zero_edit/resume"),
        ("rung_inside/zero_edit", "rung_inside/attach"),
        ("rung_inside/patching",),
        ("rung_inside/numerics", "rung_inside/contract"),
    ],
    # Looks into checkpoints, and stands alone.
    "jobs/inside/rung_inside/verify": [(".",)],
}
# Which of these lists may import from which other one.
BELOW = {
    "jobs": set(),
    "recovery": {"jobs"},
    "recovery/doctor": {"jobs"},
    "runner": {"jobs", "recovery", "recovery/doctor"},
    "jobs/inside": set(),
    "jobs/inside/rung_inside/verify": set(),
}
# An engine is given its connection, whatever that is made of.
NEVER = {("runner/engines", "runner/ssh"), ("runner/engines/docker", "runner/ssh")}
MOST_MODULES = 15
MOST_LINES = 300
# Nine of ten functions are no longer than the first.
USUAL_FUNCTION, LONGEST_FUNCTION = 15, 40
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
    *("typing", "warnings", "yaml", "rung"),
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


def all_files() -> list[Path]:
    return [path for path in (*product_files(), *product_files(runs_in_the_job=True)) if "catalog" not in path.parts]


def module_of(path: Path) -> str:
    """Return the name by which a file is imported: below `rung`, or for the code in a job below `rung_inside`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[2:] if parts[:2] == ("jobs", "inside") else ("rung", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in all_files()}


def imported_files(path: Path) -> set[Path]:
    """Return the product files that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {MODULES.get(name, MODULES.get(str(node.module))) for name in names}
        elif isinstance(node, ast.Import):
            found |= {MODULES.get(alias.name) for alias in node.names}
    return {each for each in found if each is not None and each != path}


def list_of(path: Path) -> tuple[str, str]:
    """Return the list of ORDER that a file belongs to, and its folder there."""
    folder = path.parent.relative_to(ROOT).as_posix()
    order = max((name for name in ORDER if f"{folder}/".startswith(f"{name}/")), key=len)
    return order, folder.removeprefix(order).strip("/") or "."


def line_of(order: str, folder: str) -> int:
    return next(number for number, folders in enumerate(ORDER[order]) if folder in folders)


@pytest.mark.parametrize("path", all_files(), ids=name_of)
def test_imports_run_one_way(path: Path) -> None:
    assert not {top(module) for module in imports(path)} & {*FLOORS, "tests"}, "import it from rung"
    order, folder = list_of(path)
    for other in imported_files(path):
        other_order, other_folder = list_of(other)
        if other_order != order:
            assert other_order in BELOW[order], f"imports {name_of(other)}"
        elif other_folder != folder:
            assert line_of(order, folder) < line_of(order, other_folder), f"imports {name_of(other)}"
        assert (name_of(path.parent), name_of(other.parent)) not in NEVER, f"imports {name_of(other)}"


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return every group of nodes that reach each other (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            group = [stack.pop()]
            while group[-1] != node:
                group.append(stack.pop())
            found.extend([sorted(group)] if len(group) > 1 else [])

    for node in graph:
        if node not in index:
            visit(node)
    return found


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set()}) == [["a", "b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = {name_of(path): {name_of(other) for other in imported_files(path)} for path in all_files()}
    assert sum(map(len, graph.values())) > 500
    assert circles(graph) == []


def test_no_folders_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for path in all_files():
        others = {name_of(other.parent) for other in imported_files(path)}
        graph.setdefault(name_of(path.parent), set()).update(others - {name_of(path.parent)})
    assert len(graph) > 30
    assert circles(graph) == []


def test_no_folder_holds_more_than_a_reader_takes_in() -> None:
    folders = {path.parent for path in all_files()}
    modules = {name_of(folder): len([*folder.glob("[!_]*.py")]) for folder in folders}
    assert {name: count for name, count in modules.items() if count > MOST_MODULES} == {}


def test_files_and_functions_are_short() -> None:
    long_files = {
        name_of(path) for path in all_files() if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES
    }
    assert long_files == set()
    lengths = sorted(
        (node.end_lineno - node.lineno + 1, f"{name_of(path)}: {node.name}")
        for path in all_files()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno
    )
    assert lengths[-1][0] <= LONGEST_FUNCTION, lengths[-1]
    assert lengths[len(lengths) * 9 // 10][0] <= USUAL_FUNCTION


def test_only_the_state_folder_changes_the_state_of_a_job() -> None:
    callers = [path for path in product_files() if "store.move(" in path.read_text(encoding="utf-8")]
    assert {name_of(path.parent) for path in callers} == {"runner/state"}


@pytest.mark.parametrize("path", [p for p in product_files() if floor_of(p) != "runner"], ids=name_of)
def test_pure_floors_touch_no_clock_disk_process_or_network(path: Path) -> None:
    assert {top(module) for module in imports(path)} <= PURE_MAY_USE
    tree = ast.parse(path.read_text(encoding="utf-8"))
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name))
    }
    allowed = {"read_bytes"} if name_of(path) == "jobs/spec/load.py" else set()
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
def test_every_product_file_says_what_it_does(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)) if text else path.name == "__init__.py"


def loaded_after(code: str) -> set[str]:
    command = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    return set(done.stdout.split())


SESSION = "rung.runner.cli.main, rung.runner.session.session"
REMOTE = {"paramiko", "fabric", "docker", "cryptography", "requests"}


def test_the_controller_never_loads_torch() -> None:
    modules = loaded_after(f"import {SESSION}, rung.runner.controller.controller, rung.runner.ssh.remote")
    assert {"rung.runner.session.session", "pydantic", "paramiko"} <= modules
    assert not {"torch", "numpy"} & modules


def test_jobs_that_run_here_load_nothing_of_what_remote_hosts_need() -> None:
    modules = loaded_after(f"import {SESSION}, rung.runner.controller.controller, rung.runner.engines.process")
    assert "rung.runner.session.session" in modules
    assert not REMOTE & modules


def test_help_loads_neither_pydantic_nor_torch() -> None:
    code = "import contextlib, io, rung.runner.cli.main\nwith contextlib.redirect_stdout(io.StringIO()) as said:\n"
    code += "    sys.argv = ['rung', '--help']\n    rung.runner.cli.main.main()\nassert 'launch' in said.getvalue()"
    modules = loaded_after(code)
    assert "click" in modules
    assert not {"pydantic", "torch", "yaml", "sqlite3", "tenacity", *REMOTE} & modules
