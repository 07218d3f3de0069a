"""Tests that commands which only look import nothing heavy, and that ended jobs do not slow them down.

How long they take is measured by `python -m tests.bench commands`; here it is held what makes them quick.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.errors import StoreError
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.cli.main import LISTED, cli
from rung.runner.state.store import Store
from rung.runner.views.queue import QueueFilter, queue

# Each of these takes longer to load than a whole command may take.
HEAVY = {
    *("asyncio", "concurrent.futures", "cryptography", "docker", "email", "fabric", "hashlib", "http", "hyperscan"),
    *("jinja2", "paramiko", "prometheus_client", "pydantic", "re2", "requests", "sse_starlette", "ssl", "starlette"),
    *("subprocess", "tarfile", "tempfile", "tenacity", "textual", "tomlkit", "torch", "uvicorn", "yaml"),
}
# What launches jobs and decides about them.
PARTS = ("controller", "engines", "launch", "ssh", "hosts", "placement", "session.session", "context")
RUN = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from rung.runner.cli.main import main
main()
"""


def add_job(store: Store, name: str, *states: JobState) -> str:
    with store.transaction():
        job = store.add_job(JobSpec.model_validate({"name": name, "run": "true"}), Path("/"), at=1.0)
        for state in states:
            store.move(job.id, state, reason="as it goes", at=2.0)
        if states:
            times = {"started_at": 1.0, "furthest_step": 7, "loss": 0.5}
            over = {"outcome": Outcome.SUCCEEDED, "ended_at": 2.0} if states[-1] is JobState.SUCCEEDED else {}
            store.put_attempt(Attempt(job.id, 1, "localhost", Knobs(), None, "", by_person=True, **times, **over))
    return job.id


@pytest.fixture
def stored(home: Path) -> HomePaths:
    """Return a home with a job that has ended and one that runs, both with a log."""
    home.mkdir(mode=0o700)
    paths = HomePaths(home)
    store = Store(paths.store)
    ended = add_job(store, "ended", JobState.LAUNCHING, JobState.RUNNING, JobState.SUCCEEDED)
    running = add_job(store, "running", JobState.LAUNCHING, JobState.RUNNING)
    store.close()
    for job in (ended, running):
        log = paths.attempt(job, 1).log
        log.parent.mkdir(parents=True)
        log.write_text("step 7 loss 0.5\n", encoding="utf-8")
    return paths


def run(arguments: Sequence[str]) -> tuple[str, set[str]]:
    """Run a command in a process of its own; return what it printed and every module that it has loaded."""
    done = subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, check=True)
    return done.stdout, set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["queue"], "running-2  RUNNING"),
        (["queue", "--json", "--state", "succeeded"], '"step": 7'),
        (["queue", "--csv", "--limit", "1"], "running-2"),
        (["history", "ended"], "SUCCEEDED"),
        (["history", "ended", "--csv"], "ended"),
        (["history", "running"], "step 7"),
        (["logs", "ended"], "step 7 loss 0.5"),
        (["logs", "running", "--tail", "1"], "step 7 loss 0.5"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_that_only_looks_loads_nothing_heavy(stored: HomePaths, command: list[str], shown: str) -> None:
    printed, loaded = run(command)
    assert shown in printed
    assert {"click", "sqlite3", "rung.runner.state.store"} <= loaded
    assert HEAVY & loaded == set()
    parts = tuple(f"rung.runner.{part}" for part in PARTS)
    assert [name for name in loaded if name.startswith((*parts, "rung.jobs.spec."))] == []


def test_controller_status_loads_nothing_heavy(stored: HomePaths) -> None:
    command = [sys.executable, "-c", RUN, "controller", "--status"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.partition(":")[0]) == (
        1,
        "no controller is running; 1 active job without one",
    )
    assert HEAVY & set(done.stderr.split()) == set()


def test_the_job_file_of_a_waiting_job_is_parsed_because_it_may_be_refused_now(stored: HomePaths) -> None:
    store = Store(stored.store)
    add_job(store, "waiting")
    store.close()
    printed, loaded = run(["queue"])
    assert "waiting-3  QUEUED" in printed and "pydantic" in loaded


@pytest.mark.parametrize("name", sorted(LISTED))
def test_the_list_of_commands_says_what_each_command_says_of_itself(name: str) -> None:
    assert cli.commands[name].name == name
    assert cli.commands[name].get_short_help_str(limit=80) == LISTED[name][1]


def plan_of(store: Store, query: str) -> str:
    return " ".join(row["detail"] for row in store._rows(f"EXPLAIN QUERY PLAN {query}"))


def test_active_jobs_are_found_by_an_index_and_not_among_all_jobs(
    stored: HomePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(stored.store)
    asked: list[str] = []
    rows = store._rows
    monkeypatch.setattr(store, "_rows", lambda query, *values: asked.append(query) or rows(query, *values))
    assert [job.id for job in store.jobs(active=True)] == ["running-2"]
    assert store.active_count() == 1
    store.groups(limited=True)
    monkeypatch.undo()
    plans = [plan_of(store, query) for query in asked]
    store.close()
    assert len(plans) == 3
    assert all("USING INDEX active_jobs" in plan or "USING COVERING INDEX active_jobs" in plan for plan in plans[:2])
    assert all("SCAN jobs USING" in plan or "SCAN jobs" not in plan for plan in plans)


def test_a_list_reads_only_the_jobs_that_it_shows(stored: HomePaths) -> None:
    with sqlite3.connect(stored.store) as other:
        other.execute("UPDATE jobs SET spec = 'no JSON' WHERE id = 'ended-1'")
        other.execute("UPDATE attempts SET data = 'no JSON' WHERE job_id = 'ended-1'")
    other.close()
    store = Store(stored.store)
    newest = queue(store, 9.0, QueueFilter(limit=1))
    active = queue(store, 9.0, QueueFilter(states=("RUNNING",)))
    named = queue(store, 9.0, QueueFilter(name="run*"))
    assert newest == active == named
    assert [(row["id"], row["name"], row["step"]) for row in newest] == [("running-2", "running", 7)]
    with pytest.raises(StoreError, match="cannot be read"):
        queue(store, 9.0)
    store.close()
