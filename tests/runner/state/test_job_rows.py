"""Tests that what a controller keeps in memory is never older than the store, and that no progress is lost."""

from __future__ import annotations

import gc
import sqlite3
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state import codec
from rung.runner.state.store import Store

SPEC = JobSpec(name="a", run=("true",))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give the store of a controller."""
    opened = Store(tmp_path / "rung.db")
    opened.remember()
    yield opened
    opened.close()


@pytest.fixture
def other(store: Store, tmp_path: Path) -> Iterator[Store]:
    """Give the same store as another process has it."""
    opened = Store(tmp_path / "rung.db")
    yield opened
    opened.close()


def add(store: Store, *numbers: int) -> str:
    with store.transaction():
        job_id = store.add_job(SPEC, Path("/jobs"), at=1.0).id
        for number in numbers:
            store.put_attempt(attempt(job_id, number))
    return job_id


def attempt(job_id: str, number: int = 1) -> Attempt:
    return Attempt(job_id, number, "localhost", Knobs(), None, "as submitted")


def active(store: Store) -> list[tuple[str, JobState, str]]:
    store.look_for_changes()
    return [(job.id, job.state, job.reason) for job in store.jobs(active=True)]


def test_what_this_store_writes_is_read_at_once(store: Store) -> None:
    job = add(store)
    assert active(store) == [(job, JobState.QUEUED, "waiting for the controller")]
    with store.transaction():
        store.set_reason(job, "no room")
        assert store.job(job).reason == "no room"
    assert active(store) == [(job, JobState.QUEUED, "no room")]
    with store.transaction():
        store.put_attempt(attempt(job))
        assert len(store.attempts(job)) == 1
        store.move(job, JobState.CANCELLED, reason="by a person", at=2.0)
    assert active(store) == [] and store.job(job).state is JobState.CANCELLED


def test_what_another_process_writes_is_read_after_the_next_look_and_in_every_transaction(
    store: Store, other: Store
) -> None:
    job = add(store)
    assert active(store)[0][2] == "waiting for the controller"
    with other.transaction():
        other.request_cancel(job)
    with store.transaction():
        assert store.job(job).cancel_requested
    second = add(other)
    assert [each[0] for each in active(store)] == [job, second]


def test_a_job_that_did_not_change_is_the_same_object(store: Store, other: Store) -> None:
    first, second = add(store), add(store)
    before = {job.id: job for job in store.jobs(active=True)}
    with other.transaction():
        other.set_reason(second, "no room")
    store.look_for_changes()
    after = {job.id: job for job in store.jobs(active=True)}
    assert after[first] is before[first] and after[second] is not before[second]


def test_a_transaction_that_fails_leaves_no_trace_in_the_memory(store: Store) -> None:
    job = add(store, 1)
    active(store)
    with pytest.raises(ZeroDivisionError), store.transaction():
        store.set_reason(job, "never written")
        store.put_attempt(replace(attempt(job), because="never written"))
        assert store.attempts(job)[0].because == "never written"
        _ = 1 / 0
    assert store.job(job).reason == "waiting for the controller" == active(store)[0][2]
    assert store.attempts(job)[0].because == "as submitted"


def test_progress_is_seen_here_at_once_and_by_others_when_it_is_written(store: Store, other: Store) -> None:
    first, second = add(store, 1, 2), add(store, 1)
    active(store)
    for number in (1, 5, 9):
        store.keep_progress(replace(attempt(first, 2), furthest_step=number))
    store.keep_progress(replace(attempt(second), furthest_step=7))
    assert [each.furthest_step for each in store.attempts(first)] == [None, 9]
    assert [[each.furthest_step for each in group] for group in store.attempts_by_job()] == [[None, 9], [7]]
    assert [each.furthest_step for each in other.attempts(first)] == [None, None]
    store.write_progress()
    assert [each.furthest_step for each in other.attempts(first)] == [None, 9]
    assert [each.furthest_step for each in other.attempts(second)] == [7]


def test_the_attempts_of_all_jobs_are_not_in_memory_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(9):
        add(store, 1, 2)
    rows, attempts, read = list[sqlite3.Row](), list[weakref.ref[Attempt]](), codec.attempt_from_row

    def counted(row: sqlite3.Row) -> Attempt:
        found = read(row)
        attempts.append(weakref.ref(found))
        return found

    monkeypatch.setattr(codec, "attempt_from_row", counted)
    store._db.row_factory = lambda *made: rows.append(sqlite3.Row(*made)) or rows[-1]  # type: ignore[func-returns-value]
    next(store.attempts_by_job())
    assert (len(rows), len(attempts)) == (3, 2), "the third row shows that the first job has no more"
    alive = [sum(each() is not None for each in attempts) for _ in store.attempts_by_job()]
    assert len(alive) == 9 and max(alive) <= 4, "those of one job, and of the one before it"


def test_progress_survives_what_another_process_writes(store: Store, other: Store) -> None:
    job = add(store, 1)
    active(store)
    store.keep_progress(replace(attempt(job), furthest_step=5))
    with other.transaction():
        other.set_reason(job, "no room")
    active(store)
    assert store.attempts(job)[0].furthest_step == 5
    store.write_progress()
    assert other.attempts(job)[0].furthest_step == 5


def test_a_decision_written_after_progress_is_not_overwritten_by_it(store: Store, other: Store) -> None:
    job = add(store, 1)
    active(store)
    store.keep_progress(replace(attempt(job), furthest_step=5))
    with store.transaction():
        store.put_attempt(replace(store.attempts(job)[0], because="decided"))
    store.write_progress()
    assert (other.attempts(job)[0].because, other.attempts(job)[0].furthest_step) == ("decided", 5)


def test_the_jobs_that_were_written_are_told_once(store: Store) -> None:
    first, second = add(store, 1), add(store, 1)
    assert store.take_written() == {first, second}
    with store.transaction():
        store.put_attempt(attempt(first))
    active(store)
    store.keep_progress(replace(attempt(second), furthest_step=5))
    store.write_progress()
    assert store.take_written() == {first} and store.take_written() == set()


def test_a_store_without_a_memory_writes_progress_at_once(other: Store) -> None:
    job = add(other, 1)
    other.keep_progress(replace(attempt(job), furthest_step=5))
    other.write_progress()
    assert other.attempts(job)[0].furthest_step == 5


def test_the_spec_of_a_job_is_kept_as_long_as_somebody_holds_the_job(store: Store) -> None:
    job_id = add(store)
    row = store._rows("SELECT * FROM jobs WHERE id = ?", job_id)[0]
    job = codec.job_from_row(row)
    spec = weakref.ref(vars(job)["spec"])
    assert vars(codec.job_from_row(row))["spec"] is spec()
    del job
    gc.collect()
    assert spec() is None


def test_the_attempts_of_a_job_that_has_ended_are_not_kept(store: Store) -> None:
    job = add(store, 1)
    active(store)
    kept = weakref.ref(store.attempts(job)[0])
    assert kept() is not None
    with store.transaction():
        store.move(job, JobState.CANCELLED, reason="by a person", at=2.0)
    active(store)
    gc.collect()
    assert kept() is None and len(store.attempts(job)) == 1


def test_the_texts_of_attempts_are_kept_for_active_jobs_only(store: Store) -> None:
    memory = store._memory
    assert memory is not None
    job_id = add(store, 1)
    store.jobs(active=True)
    store.keep_progress(replace(attempt(job_id), furthest_step=5))
    store.write_progress()
    assert store.attempts(job_id)[0].furthest_step == 5 and job_id in memory.texts._before.known
    with store.transaction():
        store.move(job_id, JobState.CANCELLED, reason="r", at=2.0)
    store.jobs(active=True)
    assert not memory.texts._before.known
