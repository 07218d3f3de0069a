"""Tests a retry with an edited job file, and the note for a file that has changed since the job was stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.launch.job_file import changed_since
from rung.runner.state.store import Store

FIELDS = {"name": "a", "run": "x --lr {lr} --steps 100", "knobs": {"lr": 0.1}}

NOBODY = "no controller is running, so nobody watches a-1: `rung controller --background` starts one\n"


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    write(file)
    return file


@pytest.fixture
def failed(run_rung: Any, home: Path, job_file: Path) -> str:
    """Return a job that was launched from the file and has failed."""
    assert run_rung("launch", job_file)[0] == 0
    end(home)
    return "a-1"


def write(file: Path, **fields: Any) -> None:
    file.write_text(yaml.safe_dump({**FIELDS, **fields}), encoding="utf-8")


def end(home: Path) -> None:
    store = Store(home / "rung.db")
    with store.transaction():
        store.move("a-1", JobState.FAILED, reason="no rung is left", at=2.0)
    store.close()


def stored(home: Path) -> tuple[JobSpec, Path, JobState, float | None]:
    store = Store(home / "rung.db")
    job, origin = store.job("a-1"), store.origin("a-1")
    store.close()
    return job.spec, origin, job.state, job.knobs.lr


def test_an_edited_file_is_used_with_file_and_its_folder_too(
    failed: str, run_rung: Any, home: Path, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    write(other / "edited.yaml", run="y --lr {lr} --steps 900", knobs={"lr": 0.01})
    assert run_rung("retry", failed, "--file", other / "edited.yaml") == (0, "a-1 is QUEUED again\n", NOBODY)
    spec, origin, state, lr = stored(home)
    assert spec.run == ("y", "--lr", "{lr}", "--steps", "900")
    assert (origin, state, lr) == (other, JobState.QUEUED, 0.01)
    event = json.loads(run_rung("history", "--json", failed)[1])["events"][-2]
    assert (event["kind"], event["data"]) == (
        "retried",
        {"knobs": {"lr": [0.1, 0.01]}, "file": str(other / "edited.yaml")},
    )


def test_a_setting_wins_over_the_edited_file(failed: str, run_rung: Any, home: Path, job_file: Path) -> None:
    write(job_file, knobs={"lr": 0.01})
    run_rung("retry", failed, "--file", job_file, "--set", "knobs.lr=0.003")
    spec, _, _, lr = stored(home)
    assert (spec.knobs.lr, lr) == (0.01, 0.003)


def test_without_file_the_stored_job_runs_and_a_changed_file_is_named(
    failed: str, run_rung: Any, home: Path, job_file: Path
) -> None:
    write(job_file, knobs={"lr": 0.01})
    code, out, err = run_rung("retry", failed)
    assert (code, out) == (0, "a-1 is QUEUED again\n")
    assert err == (
        f"note: a-1 runs as it is stored, and {job_file} has changed since: --file {job_file} takes it as it is now\n"
        + NOBODY
    )
    spec, _, _, lr = stored(home)
    assert (spec.knobs.lr, lr) == (0.1, 0.1)


def test_there_is_no_note_for_a_file_that_says_the_same_or_is_gone(
    failed: str, run_rung: Any, home: Path, job_file: Path
) -> None:
    job_file.write_text("# only a comment\n" + job_file.read_text())
    assert run_rung("retry", failed) == (0, "a-1 is QUEUED again\n", NOBODY)
    end(home)
    job_file.unlink()
    assert run_rung("retry", failed) == (0, "a-1 is QUEUED again\n", NOBODY)


def test_a_file_that_is_not_valid_any_more_has_changed(failed: str, run_rung: Any, job_file: Path) -> None:
    job_file.write_text("name: [")
    code, out, err = run_rung("retry", failed, "--json")
    assert code == 0 and json.loads(out)["state"] == "QUEUED"
    assert err.startswith("note: a-1 runs as it is stored") and err.removesuffix(NOBODY).count("\n") == 1


def test_after_a_retry_with_a_file_that_one_is_compared(
    failed: str, run_rung: Any, home: Path, job_file: Path, tmp_path: Path
) -> None:
    write(tmp_path / "new.yaml", knobs={"lr": 0.01})
    run_rung("retry", failed, "--file", tmp_path / "new.yaml")
    end(home)
    assert run_rung("retry", failed)[2] == NOBODY
    end(home)
    write(tmp_path / "new.yaml", knobs={"lr": 0.02})
    assert f"{tmp_path}/new.yaml has changed since" in run_rung("retry", failed)[2]


def test_a_job_of_an_older_rung_has_no_known_file(tmp_path: Path) -> None:
    store = Store(tmp_path / "rung.db")
    with store.transaction():
        job = store.add_job(JobSpec.model_validate(FIELDS), tmp_path, at=1.0)
    write(tmp_path / "job.yaml", knobs={"lr": 5})
    assert changed_since(store, job) is None
    store.close()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "b"}, "--file: its name is 'b', and a-1 is 'a'; launch it as a new job"),
        ({"checkpoint": {"dir": "other"}}, "--file: checkpoint.dir is not that of a-1"),
        ({"image": f"x@sha256:{'0' * 64}"}, "a: a job with an image runs on a host, and the list of hosts is empty"),
        ({"workdir": "nowhere"}, "a: workdir "),
        ({"knobs": {"lrr": 1}}, "{file}:2: knobs.lrr: unknown key"),
    ],
)
def test_a_file_that_cannot_be_taken_is_one_line_and_changes_nothing(
    failed: str, run_rung: Any, home: Path, job_file: Path, fields: dict[str, Any], message: str, client_home: Path
) -> None:
    before = stored(home)
    write(job_file, **fields)
    code, out, err = run_rung("retry", failed, "--file", job_file)
    assert (code, out) == (2, "")
    assert err.startswith(f"rung: {message.format(file=job_file)}") and err.count("\n") == 1
    assert stored(home) == before


def test_a_file_for_another_place_is_refused(
    failed: str, run_rung: Any, home: Path, job_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hosts.yml").write_text("all: {hosts: {titan: {ansible_host: 192.0.2.1}}}")
    monkeypatch.setenv("RUNG_HOSTS", str(tmp_path / "hosts.yml"))
    write(job_file, image=f"x@sha256:{'0' * 64}")
    code, _, err = run_rung("retry", failed, "--file", job_file)
    assert (code, err) == (
        2,
        "rung: --file: it would run in an image on a host, away from the checkpoints of a-1; launch it as a new job\n",
    )


def test_a_missing_file_is_one_line(failed: str, run_rung: Any, tmp_path: Path) -> None:
    code, _, err = run_rung("retry", failed, "--file", tmp_path / "none.yaml")
    assert (code, err.count("\n")) == (2, 1) and "none.yaml: cannot be read: No such file" in err


def test_a_job_whose_stored_file_is_refused_now_can_be_retried_with_a_corrected_one(
    failed: str, run_rung: Any, home: Path, job_file: Path
) -> None:
    store = Store(home / "rung.db")
    with store.transaction():
        store._db.execute("UPDATE jobs SET spec = json_set(spec, '$.knobs.lr', -1)")
    store.close()
    assert run_rung("retry", failed)[0] == 2
    assert run_rung("retry", failed, "--file", job_file)[0] == 0
    assert stored(home)[0].knobs.lr == 0.1
