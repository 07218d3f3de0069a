"""Tests that a store of an older version is migrated with its rows, and that one of a newer version is refused."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.checkpoint_verdict import CheckpointVerdict
from rung.jobs.model.errors import StoreError
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.codec import attempt_to_json, verdict_to_dict
from rung.runner.state.migrations import MIGRATIONS, VERSION_1, VERSION_2
from rung.runner.state.store import Store

Rung = Callable[..., Any]
SPEC = JobSpec(name="a", run=("true",))


def old_store(path: Path) -> None:
    """Write a store as version 1 left it, with a job and an event."""
    raw = sqlite3.connect(path, isolation_level=None)
    for statement in VERSION_1:
        raw.execute(statement)
    raw.execute("PRAGMA user_version = 1")
    raw.execute("INSERT INTO meta VALUES ('store_id', 'kept')")
    knobs = json.dumps(Knobs(lr=0.5).to_dict())
    row = ("old-1", 1, "old", SPEC.model_dump_json(), "/o", "FAILED", "why", 1.0, 2.0, knobs, 1, 0)
    raw.execute("INSERT INTO jobs VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", row)
    attempt = Attempt("old-1", 1, "h", Knobs(lr=0.5), None, "as submitted", loss=math.inf)
    raw.execute("INSERT INTO attempts VALUES ('old-1', 1, ?)", (attempt_to_json(attempt),))
    raw.execute("INSERT INTO events (at, job_id, attempt, kind, data) VALUES (1.0, 'old-1', NULL, 'submitted', '{}')")
    raw.close()


def test_a_store_of_version_1_is_migrated_and_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "rung.db"
    old_store(path)
    store = Store(path)
    job = store.find("old")
    assert (job.state, job.knobs.lr, job.settled) == (JobState.FAILED, 0.5, 1)
    assert store.store_id == "kept"
    assert store.attempts("old-1")[0].loss == math.inf
    assert [event.kind for event in store.events()] == ["submitted"]
    assert store.verdicts("old-1") == {}
    assert store._rows("PRAGMA user_version")[0][0] == len(MIGRATIONS) >= 2
    store.close()
    Store(path).close()  # a second time changes nothing


def test_a_store_of_version_2_gets_leases_and_keeps_its_attempts(tmp_path: Path) -> None:
    path = tmp_path / "rung.db"
    old_store(path)
    raw = sqlite3.connect(path, isolation_level=None)
    for statement in VERSION_2:
        raw.execute(statement)
    raw.execute("PRAGMA user_version = 2")
    for name, verdict in (("a.pt:1:2.0", "healthy"), ("b.pt:1:2.0", "needs_allow_list")):
        row = ("old-1", name, json.dumps(verdict_to_dict(CheckpointVerdict(verdict))))
        raw.execute("INSERT INTO verdicts VALUES (?, ?, ?)", row)
    # An attempt as that version wrote it, without the fields about hosts.
    (data,) = raw.execute("SELECT data FROM attempts").fetchone()
    new = ("gpus", "image", "stay", "checkpoint_from", "unreachable_since", "host_lost")
    old = {name: value for name, value in json.loads(data).items() if name not in new}
    raw.execute("UPDATE attempts SET data = ?", (json.dumps(old),))
    raw.close()
    store = Store(path)
    assert store._rows("PRAGMA user_version")[0][0] == len(MIGRATIONS)
    # What earlier versions let through with an allow list is examined again: some of it runs code.
    assert (store.leases(), store.orphans(), list(store.verdicts("old-1"))) == ([], [], ["a.pt:1:2.0"])
    (attempt,) = store.attempts("old-1")
    assert (attempt.because, attempt.gpus, attempt.image, attempt.residence) == ("as submitted", (), None, 1)
    store.close()


def test_a_migration_that_fails_leaves_the_old_version(tmp_path: Path) -> None:
    path = tmp_path / "rung.db"
    old_store(path)
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("CREATE TABLE stale (x)")  # version 3 cannot create its table of this name
    with pytest.raises(StoreError, match="stale already exists"):
        Store(path)
    tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert raw.execute("PRAGMA user_version").fetchone() == (1,)
    assert "stale" in tables and not {"verdicts", "leases"} & tables
    raw.execute("DROP TABLE stale")
    raw.close()
    store = Store(path)
    assert store.find("old").id == "old-1"
    assert store.verdicts("old-1") == {}
    store.close()


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_store_of_a_newer_version_is_refused_and_stays_byte_for_byte(
    home: Path, tmp_path: Path, rung: Rung, journal: str
) -> None:
    home.mkdir()
    path = home / "rung.db"
    raw = sqlite3.connect(path)
    raw.execute(f"PRAGMA journal_mode = {journal}")
    raw.execute("CREATE TABLE something_new (x)")
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    before = path.read_bytes()
    (tmp_path / "job.yaml").write_text("name: a\nrun: 'true'\n", encoding="utf-8")
    for words in (["queue"], ["launch", tmp_path / "job.yaml"], ["controller", "--until-idle"]):
        ran = rung(*words)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err == (
            f"rung: {path}: written by a newer Rung (store version 99, this one knows {len(MIGRATIONS)}); "
            "use that version, nothing was changed\n"
        )
    assert path.read_bytes() == before
