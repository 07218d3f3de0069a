"""Tests what the store says about where attempts ended: bounded, and kept over a restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state import place_rows
from rung.runner.state.store import Store
from tests.support.places import ASSERT, died, ended, record

NOW = 1_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path / "rung.db")) as store:
        yield store


def test_attempts_are_read_only_where_one_had_a_fault_of_the_machine(store: Store, tmp_path: Path) -> None:
    assert (store.ended_lately(), store.newest_end(), store.bad_places(NOW)) == ([], 0, [])
    record(store, tmp_path, [ended("a", NOW - 9)])
    first = store.newest_end()
    assert store.ended_lately() == [] and first > 0
    jobs = record(store, tmp_path, [died("b", NOW - 8), died("c", NOW - 7, ASSERT), ended("d", NOW - 6, gpus=(1,))])
    assert sorted(each.job_id for each in store.ended_lately()) == jobs, "what ended before the first fault is no news"
    assert store.newest_end() > first
    (bad,) = store.bad_places(NOW)
    assert bad.jobs == (jobs[0],)


@pytest.mark.parametrize("wrong", [-1e5, 1e5])
def test_the_clock_of_a_host_does_not_count(wrong: float, store: Store, tmp_path: Path) -> None:
    record(store, tmp_path, [died("a", NOW - 9), died("b", NOW - 8)], host_clock=wrong)
    assert [each.last_at for each in store.bad_places(NOW)] == [NOW - 8]


def test_only_the_newest_attempts_and_events_are_looked_at(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(store, tmp_path, [died("a", NOW - 9), died("b", NOW - 8)])
    assert [each.until is not None for each in store.bad_places(NOW)] == [True]
    monkeypatch.setattr(place_rows, "NEWEST_ATTEMPTS", 1)
    assert [each.jobs for each in store.bad_places(NOW)] == [("b-2",)]
    monkeypatch.setattr(place_rows, "NEWEST_EVENTS", 1)
    assert store.bad_places(NOW) == []


def test_what_was_cleared_stays_cleared_and_can_be_cleared_again(store: Store, tmp_path: Path) -> None:
    record(store, tmp_path, [died("a", NOW - 9), died("b", NOW - 8)])
    for at in (NOW - 8.5, NOW - 7):
        with store.transaction():
            store.clear_place("turing", at=at)
        assert store.cleared_places() == {"turing": at}
    with closing(Store(tmp_path / "rung.db")) as later:
        assert later.bad_places(NOW) == [] and later.store_id == store.store_id


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"image": f"example.org/train@sha256:{'0' * 64}"},
        {"resources": {"gpu": ["A100"]}},
        {"resources": {"time": "1h"}},
        {"resources": {"nodes": 2, "gpu": ["A100"]}},
        {"resources": {"nodes": 1, "cpus": 2}},
        {"slurm": {"partition": "main"}},
    ],
)
def test_whether_any_job_went_to_a_host_is_told_as_its_spec_tells_it(
    fields: dict[str, Any], store: Store, tmp_path: Path
) -> None:
    assert not store.has_remote_jobs()
    spec = JobSpec.model_validate({"name": "a", "run": "true", **fields})
    with store.transaction():
        store.add_job(spec, tmp_path, at=NOW)
    assert store.has_remote_jobs() is spec.is_remote
