"""Tests the metrics as Prometheus reads them: real jobs, jobs that are removed, and what was counted before."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rung.jobs.job import Attempt
from rung.jobs.model.errors import StoreError
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.metrics.metrics import metrics_text
from rung.runner.metrics.store_reader import StoreReader, reading
from rung.runner.metrics.turn_times import TurnTimes
from rung.runner.state.lock import ownership
from rung.runner.state.store import Store
from tests.support.ended_jobs import Shelf
from tests.support.recovered_job import recovered_job

Values = dict[tuple[str, ...], float]


def parsed(text: str) -> Values:
    """Return every sample by its name and the values of its labels; a family is there once, with its type."""
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    assert all(family.type != "unknown" and family.documentation for family in families)
    samples = [sample for family in families for sample in family.samples]
    found = {(sample.name, *sample.labels.values()): sample.value for sample in samples}
    assert len(found) == len(samples)
    return found


def read(home: Path) -> Values:
    return parsed(metrics_text(HomePaths(home)))


@pytest.fixture(scope="module")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recovered_job(tmp_path_factory.mktemp("recovered"))


@pytest.fixture
def shelf(home: Path) -> Iterator[Shelf]:
    made = Shelf(home)
    yield made
    made.store.close()


def test_a_job_that_was_recovered_is_seen_in_every_number(recovered: Path) -> None:
    found = read(recovered)
    assert found["rung_jobs", "SUCCEEDED"] == 1 and found["rung_jobs", "RUNNING"] == 0
    assert found["rung_recoveries_total", "nan_loss", "lower_lr"] == 1
    assert found[("rung_steps_lost_total",)] == 30
    assert found["rung_verdicts_total", "recovered"] == 1
    assert found[("rung_launches_total",)] == 2
    assert (
        found[("rung_fault_to_relaunch_seconds_count",)] == found["rung_fault_to_relaunch_seconds_bucket", "+Inf"] == 1
    )
    assert 0 < found[("rung_fault_to_relaunch_seconds_sum",)] < 3600
    assert found[("rung_controller_up",)] == found[("rung_unwatched_jobs",)] == 0
    assert found[("rung_controller_turn_seconds_count",)] > 2
    assert found[("rung_controller_longest_turn_seconds",)] >= found[("rung_controller_last_turn_seconds",)] > 0
    assert time.time() - 3600 < found[("rung_controller_last_turn_timestamp_seconds",)] <= time.time() + 1


def test_the_store_is_only_read(recovered: Path) -> None:
    before = (recovered / "rung.db").read_bytes()
    metrics_text(HomePaths(recovered))
    assert (recovered / "rung.db").read_bytes() == before
    with pytest.raises(StoreError, match="readonly"), reading(HomePaths(recovered)) as reader:
        reader._db.execute("DELETE FROM jobs")


def test_counters_do_not_fall_when_a_job_is_removed(shelf: Shelf, rung: Callable[..., Any]) -> None:
    job = shelf.add("old")
    before = read(shelf.home)
    assert before["rung_jobs", "FAILED"] == 1
    assert rung("rm", job, "--yes").code == 0
    after = read(shelf.home)
    assert after["rung_jobs", "FAILED"] == 0
    counters = {key: value for key, value in before.items() if key[0].endswith(("_total", "_bucket", "_count", "_sum"))}
    assert len(counters) > 10
    assert {key: after[key] for key in counters} == counters
    assert after["rung_jobs_ended_total", "FAILED"] == 1


def test_jobs_that_nobody_watches_are_a_number(shelf: Shelf) -> None:
    shelf.add("alone", state=JobState.RUNNING)
    assert read(shelf.home)[("rung_unwatched_jobs",)] == 1
    with ownership(HomePaths(shelf.home)):
        found = read(shelf.home)
    assert (found[("rung_controller_up",)], found[("rung_unwatched_jobs",)]) == (1, 0)


def test_a_home_without_a_store_has_all_numbers_and_makes_nothing(home: Path) -> None:
    found = read(home)
    assert found["rung_jobs", "QUEUED"] == found[("rung_jobs_submitted_total",)] == found[("rung_controller_up",)] == 0
    assert not home.exists()


def test_a_host_counts_as_reachable_while_its_jobs_are_seen(shelf: Shelf) -> None:
    hostile = 'am"pe\\re\n'
    spec = {"image": f"x@sha256:{'0' * 64}", "resources": {"gpu": "A100:1"}}
    for name, host, away in (("one", hostile, None), ("two", "gone", 5.0)):
        job = shelf.add(name, state=JobState.RUNNING, **spec)
        (attempt,) = shelf.store.attempts(job)
        with shelf.store.transaction():
            running = replace(attempt, host=host, unreachable_since=away, outcome=type(attempt.outcome).PENDING)
            shelf.store.put_attempt(running)
    found = read(shelf.home)
    assert found["rung_host_reachable", 'am"pe\\re'] == 1
    assert found["rung_host_reachable", "gone"] == 0


def test_hosts_that_the_controller_asked_are_told_for_a_minute(shelf: Shelf) -> None:
    paths = HomePaths(shelf.home)
    TurnTimes(paths.turn_times, lambda: {"near": True, "far": False}, wall=lambda: 1000.0).turn(lambda: 0)
    soon = parsed(metrics_text(paths, wall=lambda: 1010.0))
    assert (soon["rung_host_reachable", "near"], soon["rung_host_reachable", "far"]) == (1, 0)
    assert ("rung_host_reachable", "near") not in parsed(metrics_text(paths, wall=lambda: 1100.0))


# What was counted before


def many(home: Path, jobs: int) -> Store:
    home.mkdir(mode=0o700)
    store = Store(home / "rung.db")
    spec = JobSpec.model_validate({"name": "a", "run": "x {lr}", "knobs": {"lr": 0.1}})
    with store.transaction():
        for _ in range(jobs):
            job = store.add_job(spec, home, at=1.0)
            store.put_attempt(Attempt(job.id, 1, "localhost", Knobs(), None, "", by_person=True))
            for number in range(3):
                store.add_event(job.id, 1, "started", {"argv": []}, at=float(number))
            store.move(job.id, JobState.CANCELLED, reason="", at=2.0)
    return store


def test_jobs_that_have_ended_are_counted_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, asked = many(home, 150), []
    counts = StoreReader._counts
    monkeypatch.setattr(StoreReader, "_counts", lambda self, jobs: asked.extend(jobs) or counts(self, jobs))
    first = read(home)
    assert len(asked) == 150 and first[("rung_launches_total",)] == 450
    assert oct(HomePaths(home).counted.stat().st_mode & 0o777) == "0o600"
    asked.clear()
    assert read(home) == first and asked == []
    with store.transaction():
        store.add_event("a-7", 1, "started", {"argv": []}, at=9.0)
    assert read(home)[("rung_launches_total",)] == 451 and asked == ["a-7"]
    store.close()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 0}', None])
def test_a_file_that_cannot_be_used_is_counted_again(home: Path, text: str | None) -> None:
    many(home, 130).close()
    first, file = read(home), HomePaths(home).counted
    data = json.loads(file.read_bytes())
    file.write_text(json.dumps({**data, "store": "another"}) if text is None else text)
    assert read(home) == first
    # And it is put right.
    assert json.loads(file.read_bytes()) == data


def test_a_store_from_an_older_copy_is_counted_again(home: Path) -> None:
    many(home, 130).close()
    first, file = read(home), HomePaths(home).counted
    data = json.loads(file.read_bytes())
    file.write_text(json.dumps({**data, "event": data["event"] + 1, "total": [["launches", 9]]}))
    assert read(home) == first


# The command


def test_the_command_writes_a_file_for_others_whole_or_not_at_all(recovered: Path, rung: Any, tmp_path: Path) -> None:
    env, file = {"RUNG_HOME": str(recovered)}, tmp_path / "rung.prom"
    file.write_text("old")
    assert rung("metrics", "-o", file, env=env).code == 0
    assert parsed(file.read_text()).keys() == parsed(rung("metrics", env=env).out).keys()
    assert oct(file.stat().st_mode & 0o777) == "0o644"
    assert [path.name for path in tmp_path.iterdir()] == ["rung.prom"]
    done = rung("metrics", "-o", tmp_path / "no" / "rung.prom", env=env)
    assert done.code == 2 and done.err.count("\n") == 1 and "cannot be written" in done.err


def test_a_store_of_another_version_is_refused_in_one_line(home: Path, rung: Any) -> None:
    store = many(home, 1)
    for version, said in ((99, "newer Rung"), (3, "older Rung")):
        store._db.execute(f"PRAGMA user_version = {version}")
        done = rung("metrics")
        assert done.code == 2 and said in done.err and done.out == ""
    store.close()
