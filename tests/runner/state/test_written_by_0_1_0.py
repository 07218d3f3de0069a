"""Tests that what version 0.1.0 wrote is found again: its store, its running job, its names on hosts.

`written_by_0_1_0/store.sql` is a store as 0.1.0 left it, with a controller killed while `crossing-5` ran, and
`printed.json` is what 0.1.0 itself printed of that store.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Outcome
from rung.jobs.model.paths import HomePaths, HostPaths
from rung.jobs.model.state import JobState
from rung.runner.engines.docker.container_config import container_name, labels, secrets_folder
from rung.runner.files.ship import scan_workdir
from rung.runner.seams.engine import FileEntry
from rung.runner.state.store import Store

WRITTEN = Path(__file__).parent / "written_by_0_1_0"
PRINTED = json.loads((WRITTEN / "printed.json").read_text(encoding="utf-8"))
JOB = "crossing-5"
TREE = "67457705fb04048b45b1e4b6a817af669ec824ef82e47a3479263508cd8970d4"


@pytest.fixture
def old_home(home: Path) -> Path:
    home.mkdir()
    database = sqlite3.connect(home / "rung.db")
    database.executescript((WRITTEN / "store.sql").read_text(encoding="utf-8"))
    database.close()
    return home


def comparable(new: Any, old: Any) -> Any:
    """Return what is printed now with only the keys of then, and only the file names of logs, which lie elsewhere.

    docs/schemas names the keys that later versions print in addition, and tests/runner/cli holds the outputs to it.
    """
    if isinstance(new, dict) and isinstance(old, dict):
        kept = {key: comparable(value, old[key]) for key, value in new.items() if key in old}
        return {**kept, **({"log": Path(kept["log"]).name} if "log" in kept else {})}
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [comparable(*pair) for pair in zip(new, old, strict=True)]
    return new


def test_the_queue_prints_the_same(old_home: Path, rung: Callable[..., Any]) -> None:
    assert comparable(json.loads(rung("queue", "--json").out), PRINTED["queue"]) == PRINTED["queue"]


def test_the_ledger_counts_its_jobs_and_claims_nothing_that_was_not_seen(
    old_home: Path, rung: Callable[..., Any]
) -> None:
    """Version 0.1.0 printed `took: 1`, though the script reports no knob."""
    (row,) = json.loads(rung("ladder", "--json").out)
    assert (row["fault"], row["rung"]) == ("fp16_overflow", "fp32")
    assert (row["tries"], row["took"], row["survived"], row["lost"]) == (1, 0, 1, 5)
    assert (row["not_known"], row["recovered"]) == (1, 0)
    assert json.loads(rung("ladder", "--calibration", "--json").out)["not_known"] == 1


@pytest.mark.parametrize("job", PRINTED["history"])
def test_the_history_prints_the_same(old_home: Path, rung: Callable[..., Any], job: str) -> None:
    printed = json.loads(rung("history", job, "--json").out)
    then = PRINTED["history"][job]
    assert comparable(printed, then) == comparable(then, then)


@pytest.fixture
def still_running(old_home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Return the process of an attempt that 0.1.0 started, with the files that its wrapper had written."""
    attempt = HomePaths(old_home).attempt(JOB, 1)
    attempt.folder.mkdir(parents=True)
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    started = int(Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    claim = {"pid": process.pid, "started": started, "boot": boot, "claimed_at": 1794796237.2033956}
    attempt.claim.write_text(json.dumps(claim), encoding="ascii")
    attempt.running.write_text(json.dumps({"group": process.pid}), encoding="ascii")
    attempt.log.write_text("step 1 loss 1.0\nstep 2 loss 0.9\n", encoding="ascii")
    yield process
    process.kill()
    process.wait()


def test_a_job_that_runs_across_the_upgrade_is_picked_up_and_not_started_again(
    old_home: Path,
    still_running: subprocess.Popen[bytes],
    spawn: Callable[..., Any],
    wait_until: Callable[..., Any],
) -> None:
    attempt, store = HomePaths(old_home).attempt(JOB, 1), Store(old_home / "rung.db")
    spawn("controller", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with attempt.log.open("a", encoding="ascii") as log:
        log.write("step 3 loss 0.8\n")
    wait_until(lambda: store.attempts(JOB)[-1].furthest_step == 3)
    assert store.job(JOB).state is JobState.RUNNING and still_running.poll() is None
    still_running.kill()
    still_running.wait()
    done = {"exit_code": 0, "signal": None, "ended_at": 1794796999.0}
    draft = attempt.folder / "done.draft"
    draft.write_text(json.dumps(done), encoding="ascii")
    draft.rename(attempt.done)
    wait_until(lambda: store.job(JOB).state is JobState.SUCCEEDED)
    (only,) = store.attempts(JOB)
    assert (only.number, only.outcome, only.furthest_step) == (1, Outcome.SUCCEEDED, 3)


# The names of 0.1.0: with other names, its files and containers on a host would not be found.


def test_a_container_has_the_same_name_and_labels() -> None:
    assert container_name("0123abcd", "mmgcn-7", 3) == "rung-0123abcd-mmgcn-7-3"
    assert labels("0123abcd", "mmgcn-7", 3) == {"rung.store": "0123abcd", "rung.job": "mmgcn-7", "rung.attempt": "3"}
    assert secrets_folder("0123abcd", "mmgcn-7", 3) == "/dev/shm/rung-0123abcd-mmgcn-7-3"


def test_folders_on_a_host_have_the_same_names() -> None:
    paths = HostPaths("/home/rung", "0123abcd")
    assert paths.trees == "/home/rung/.rung/0123abcd/trees"
    assert paths.job("mmgcn-7", 2) == "/home/rung/.rung/0123abcd/jobs/mmgcn-7/stays/2"
    assert paths.work("mmgcn-7", 3) == "/home/rung/.rung/0123abcd/jobs/mmgcn-7/attempts/3/work"
    assert paths.record("mmgcn-7", 3) == "/home/rung/.rung/0123abcd/jobs/mmgcn-7/attempts/3/record"


def test_a_shipped_tree_has_the_same_id(tmp_path: Path) -> None:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    for name, text in (("train.py", "print(1)\n"), ("sub/conf.yaml", "lr: 1\n")):
        (tmp_path / "work" / name).write_text(text, encoding="ascii")
        (tmp_path / "work" / name).chmod(0o644)
    assert scan_workdir(tmp_path / "work", tmp_path / "home").id == TREE


def test_a_checkpoint_has_the_same_fingerprint() -> None:
    entry = FileEntry("step_20.pt", 1234, 1700000000.25, False, "ab12")
    assert entry.fingerprint == "step_20.pt:1234/ab12:1700000000.25"
