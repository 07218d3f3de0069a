"""Fixtures for all tests: their own RUNG_HOME, the real command line, and waits for a condition."""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import pace

# The time of an example says nothing about the product on a busy machine, so there is no deadline. The examples are the
# same every time, so that a result depends only on the code. `pytest --hypothesis-profile=search` looks for new ones.
settings.register_profile("rung", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("rung")

BIN = Path(sys.executable).parent
# As in a shell in which the environment is active: jobs have the Python of the shell that submits them.
os.environ["PATH"] = f"{BIN}:{os.environ.get('PATH', os.defpath)}"
# Thousands of processes load the same modules, and a shell may forbid Python to keep them compiled: without that a
# command takes a quarter more, and pytest needs more than twice as long to collect the tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Hundreds of trainings are started; none needs torch's compiler, which takes as long to load as the rest of torch.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parent / "lean"), os.environ.get("PYTHONPATH")])
)
# No test leaves a controller in the background behind; those that are about it say `auto` and stop it.
os.environ["RUNG_CONTROLLER"] = "manual"
# The longest wait in seconds; on a slow machine tests/pace.py makes it longer.
PATIENCE = 120.0


@dataclass(frozen=True)
class Ran:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """Keep the umask of the tests: the command line, run in this process, makes its own files private."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[], Any]], Any]:
    """Return a function that does something slow once for all workers; the others wait for its result."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def do(name: str, make: Callable[[], Any]) -> Any:
        with (shared / f"{name}.once").open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if kept := file.read():
                return pickle.loads(kept)
            made = make()
            file.write(pickle.dumps(made))
            return made

    return do


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a RUNG_HOME that does not exist yet and is named in the environment."""
    folder = tmp_path / "home"
    monkeypatch.setenv("RUNG_HOME", str(folder))
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def rung(home: Path) -> Callable[..., Ran]:
    """Return a function that runs the installed `rung` in a process of its own."""

    def run(*words: str | Path, stdin: str | bytes | None = None, env: dict[str, str] | None = None) -> Ran:
        done = pace.run(
            [str(BIN / "rung"), *map(str, words)],
            input=stdin.encode() if isinstance(stdin, str) else stdin if stdin is not None else b"",
            env={**os.environ, **(env or {})},
            capture_output=True,
            usual=120,
            progress=lambda: pace.newest_change(home),
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))

    return run


@pytest.fixture
def spawn(home: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a function that starts the installed `rung` in the background; it ends with the test at the latest."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str | Path, **options: Any) -> subprocess.Popen[bytes]:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
        started.append(subprocess.Popen([str(BIN / "rung"), *map(str, words)], **options))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    """Return a function that waits until a condition is true, and fails after the longest wait."""

    def wait(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        return pace.until(condition, seconds)

    return wait
