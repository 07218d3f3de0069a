"""Checks the rules of the code: which folder may import which, what each floor may use, and how long files may be."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.import_graph import FLOORS, ROOT, imported_files, imported_modules, product_files, runs_in_the_job

# What may import what. A folder imports itself and the folders on the lines below its own; folders on one line never
# import each other. "." are the modules beside the folders.
ORDER: dict[str, list[tuple[str, ...]]] = {
    "jobs": [(".",), ("config_files",), ("spec",), ("model",), ("site",)],
    "recovery": [
        ("validation", "evidence", "attention"),
        ("trials", "interruption"),
        ("detect", "decide"),
        ("unread",),
        ("doubts",),
        ("ledger", "nodes"),
        ("monitors", "series"),
        ("signatures", "shapes"),
        ("logs",),
    ],
    "recovery/doctor": [("job_draft",), (".",), ("rules",), ("analysis",)],
    "runner": [
        ("cli",),
        ("cli/review",),
        ("top",),
        ("web",),
        ("session",),
        ("controller", "preflight", "storage", "notify"),
        ("trials",),
        ("placement",),
        ("checkpoints", "validation", "report"),
        (".", "views", "metrics"),
        ("launch", "log_reading"),
        ("engines", "engines/docker", "engines/group", "engines/slurm", "series", "plots"),
        ("engines/on_host",),
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
        ("rung_inside/zero_edit/own_checkpoints",),
        ("rung_inside/zero_edit/knobs", "rung_inside/zero_edit/resume"),
        ("rung_inside/zero_edit", "rung_inside/attach"),
        ("rung_inside/places",),
        ("rung_inside/patching",),
        ("rung_inside/numerics", "rung_inside/contract"),
    ],
    # Verifies checkpoints; it imports nothing else of the product.
    "jobs/inside/rung_inside/verify": [(".",), ("pickles",), ("stored",)],
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
# An engine receives its connection as an argument.
NEVER = {
    (f"runner/{room}", "runner/ssh")
    for room in ("engines", "engines/docker", "engines/group", "engines/on_host", "engines/slurm")
}
MOST_MODULES = 15
MOST_LINES = 300
# Nine of ten functions are no longer than the first number; none is longer than the second.
USUAL_FUNCTION, LONGEST_FUNCTION = 15, 40
PURE_MAY_USE = {
    *("__future__", "array", "ast", "bisect", "collections", "dataclasses", "difflib", "enum", "functools", "heapq"),
    *("hyperscan", "itertools", "json", "math", "operator", "pathlib", "pydantic", "pydantic_core", "random", "re2"),
    *("re", "rung", "shlex", "statistics", "textwrap", "tomlkit", "types", "typing", "warnings", "yaml"),
}
INSIDE_MAY_USE = set(sys.stdlib_module_names) | {"torch", "rung_inside"}
FILE_CALLS = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "exists", "is_file", "is_dir", "glob", "iterdir"),
    *("unlink", "rename", "mkdir", "touch", "stat", "resolve", "absolute", "cwd", "home"),
}


PRODUCT_FILES = product_files()
# The rest of the product runs inside a job, with the Python of that job.
CONTROLLER_FILES = [path for path in PRODUCT_FILES if not runs_in_the_job(path)]


def floor_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def top(module: str) -> str:
    return module.partition(".")[0]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_files_of_all_floors_are_checked() -> None:
    assert {floor_of(path) for path in CONTROLLER_FILES} == set(FLOORS)
    assert len(CONTROLLER_FILES) > 30
    assert len(PRODUCT_FILES) > len(CONTROLLER_FILES)


def list_of(path: Path) -> tuple[str, str]:
    """Return the list of ORDER that a file belongs to, and its folder there."""
    folder = path.parent.relative_to(ROOT).as_posix()
    order = max((name for name in ORDER if f"{folder}/".startswith(f"{name}/")), key=len)
    return order, folder.removeprefix(order).strip("/") or "."


def line_of(order: str, folder: str) -> int:
    return next(number for number, folders in enumerate(ORDER[order]) if folder in folders)


@pytest.mark.parametrize("path", PRODUCT_FILES, ids=name_of)
def test_a_file_imports_only_what_the_order_of_folders_allows(path: Path) -> None:
    assert not {top(module) for module in imported_modules(path)} & {*FLOORS, "tests"}, "import it from rung"
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


def test_circles_finds_every_group_of_nodes_that_reach_each_other() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set()}) == [["a", "b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = {name_of(path): {name_of(other) for other in imported_files(path)} for path in PRODUCT_FILES}
    assert sum(map(len, graph.values())) > 500
    assert circles(graph) == []


def test_no_folders_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for path in PRODUCT_FILES:
        others = {name_of(other.parent) for other in imported_files(path)}
        graph.setdefault(name_of(path.parent), set()).update(others - {name_of(path.parent)})
    assert len(graph) > 30
    assert circles(graph) == []


def test_no_folder_has_more_modules_than_the_limit() -> None:
    folders = {path.parent for path in PRODUCT_FILES}
    modules = {name_of(folder): len([*folder.glob("[!_]*.py")]) for folder in folders}
    assert {name: count for name, count in modules.items() if count > MOST_MODULES} == {}


def test_files_and_functions_are_short() -> None:
    long_files = {
        name_of(path) for path in PRODUCT_FILES if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES
    }
    assert long_files == set()
    lengths = sorted(
        (node.end_lineno - node.lineno + 1, f"{name_of(path)}: {node.name}")
        for path in PRODUCT_FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno
    )
    assert lengths[-1][0] <= LONGEST_FUNCTION, lengths[-1]
    assert lengths[len(lengths) * 9 // 10][0] <= USUAL_FUNCTION


def test_only_the_state_folder_changes_the_state_of_a_job() -> None:
    callers = [path for path in CONTROLLER_FILES if "store.move(" in path.read_text(encoding="utf-8")]
    assert {name_of(path.parent) for path in callers} == {"runner/state"}


@pytest.mark.parametrize("path", [p for p in CONTROLLER_FILES if floor_of(p) != "runner"], ids=name_of)
def test_jobs_and_recovery_use_no_clock_disk_process_or_network(path: Path) -> None:
    # One pure function of the C library.
    library = {"ctypes"} if name_of(path) == "recovery/detect/prefilter.py" else set()
    assert {top(module) for module in imported_modules(path)} <= PURE_MAY_USE | library
    tree = ast.parse(path.read_text(encoding="utf-8"))
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name))
    }
    allowed = {"read_bytes"} if name_of(path) == "jobs/spec/load.py" else set()
    assert called & FILE_CALLS == allowed


@pytest.mark.parametrize("path", CONTROLLER_FILES, ids=name_of)
def test_no_product_file_outside_the_job_imports_torch_or_pickle(path: Path) -> None:
    assert not {top(module) for module in imported_modules(path)} & {
        "torch",
        "numpy",
        "pickle",
        "safetensors",
        "rung_inside",
    }


@pytest.mark.parametrize("path", sorted((ROOT / "jobs" / "inside").rglob("*.py")), ids=name_of)
def test_the_code_inside_a_job_needs_only_the_standard_library_torch_and_an_old_python(path: Path) -> None:
    assert {top(module) for module in imported_modules(path)} <= INSIDE_MAY_USE
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))


# A possessive repetition of a group, such as (?:ab)?+, in a pattern or in one that str.format or an f-string makes.
POSSESSIVE_GROUP = re.compile(r"\)(?:[?*+]|\{{1,2}[0-9,]+\}{1,2})\+")


@pytest.mark.parametrize("path", CONTROLLER_FILES, ids=name_of)
def test_no_pattern_repeats_a_group_possessively(path: Path) -> None:
    """Python before 3.11.5, such as that of Debian 12, then misses matches (python/cpython#100061 and #106052)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts = [
        each if isinstance(each, str) else each.decode("latin-1")
        for each in constants
        if isinstance(each, (str, bytes))
    ]
    assert [text for text in texts if POSSESSIVE_GROUP.search(text)] == []


def test_no_file_is_called_utils_or_the_like() -> None:
    empty = {"utils", "util", "common", "core", "manager", "base", "helpers", "misc"}
    files = [path for folder in (*FLOORS, "tests") for path in (ROOT / folder).rglob("*.py")]
    assert [name_of(path) for path in files if path.stem.removeprefix("test_") in empty] == []


@pytest.mark.parametrize("path", CONTROLLER_FILES, ids=name_of)
def test_every_product_file_has_a_docstring(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)) if text else path.name == "__init__.py"


def loaded_after(code: str) -> set[str]:
    command = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    return set(done.stdout.split())


SESSION = "rung.runner.cli.main, rung.runner.session.session"
REMOTE = {"paramiko", "fabric", "docker", "cryptography", "requests"}


def test_the_controller_does_not_load_torch() -> None:
    modules = loaded_after(f"import {SESSION}, rung.runner.controller.controller, rung.runner.ssh.remote")
    assert {"rung.runner.session.session", "pydantic", "paramiko"} <= modules
    assert not {"torch", "numpy"} & modules


def test_local_jobs_do_not_load_the_libraries_for_remote_hosts() -> None:
    modules = loaded_after(f"import {SESSION}, rung.runner.controller.controller, rung.runner.engines.process")
    assert "rung.runner.session.session" in modules
    assert not REMOTE & modules


def test_help_loads_neither_pydantic_nor_torch() -> None:
    code = "import contextlib, io, rung.runner.cli.main\nwith contextlib.redirect_stdout(io.StringIO()) as output:\n"
    code += "    sys.argv = ['rung', '--help']\n    rung.runner.cli.main.main()\nassert 'launch' in output.getvalue()"
    modules = loaded_after(code)
    assert "click" in modules
    assert not {"pydantic", "torch", "yaml", "sqlite3", "tenacity", *REMOTE} & modules
