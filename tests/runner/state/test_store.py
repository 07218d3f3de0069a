"""Tests that the store keeps everything it is given, complete and in order, also with several writers."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.checkpoint_verdict import CheckpointVerdict
from rung.jobs.model.engine import DOCKER, PROCESS, EngineKind
from rung.jobs.model.errors import EngineError, StoreError, TransitionError, UsageError
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu, Member
from rung.jobs.model.knobs import Knobs, Precision
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.codec import attempt_from_row, attempt_to_json
from rung.runner.state.store import Store
from tests import pace

Rung = Callable[..., Any]
SPEC = JobSpec(name="a", run=("true",))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "rung.db")
    yield opened
    opened.close()


def add(store: Store, name: str = "a") -> str:
    with store.transaction():
        return store.add_job(SPEC.model_copy(update={"name": name}), Path("/jobs"), at=1.0).id


def test_a_job_comes_back_as_it_was_submitted(store: Store) -> None:
    spec = JobSpec.model_validate({"name": "a b", "run": "x {lr}", "knobs": {"lr": 0.1}, "envs": {"A": "é\u202e"}})
    with store.transaction():
        made = store.add_job(spec, Path("/some where"), at=3.5)
    assert store.job(made.id) == made
    assert (made.id, made.state, made.created_at, made.knobs.lr) == ("a-b-1", JobState.QUEUED, 3.5, 0.1)
    assert store.origin(made.id) == Path("/some where")
    assert [event.kind for event in store.events(made.id)] == ["submitted"]


def test_every_change_of_state_is_an_event(store: Store) -> None:
    job_id = add(store)
    with store.transaction():
        store.move(job_id, JobState.LAUNCHING, reason="its turn", at=2.0)
    job, event = store.job(job_id), store.events(job_id)[-1]
    assert (job.state, job.reason, job.updated_at) == (JobState.LAUNCHING, "its turn", 2.0)
    assert (event.kind, event.at) == ("state", 2.0)
    assert event.data == {"from": "QUEUED", "to": "LAUNCHING", "reason": "its turn"}


def test_a_transition_that_is_not_allowed_writes_nothing(store: Store) -> None:
    job_id = add(store)
    with pytest.raises(TransitionError), store.transaction():
        store.put_attempt(Attempt(job_id, 1, "here", Knobs(), None, "why"))
        store.move(job_id, JobState.SUCCEEDED, reason="no", at=2.0)
    assert store.attempts(job_id) == []
    assert len(store.events()) == 1
    assert store.job(job_id).state is JobState.QUEUED


def test_a_transaction_is_all_or_nothing(store: Store) -> None:
    job_id = add(store)
    with pytest.raises(KeyboardInterrupt), store.transaction():
        store.put_attempt(Attempt(job_id, 1, "here", Knobs(), None, "why"))
        store.add_event(job_id, 1, "decided", {}, at=2.0)
        store.request_cancel(job_id)
        raise KeyboardInterrupt
    assert store.attempts(job_id) == []
    assert [event.kind for event in store.events()] == ["submitted"]
    assert not store.job(job_id).cancel_requested
    with store.transaction():
        store.request_cancel(job_id)
    assert store.job(job_id).cancel_requested


@pytest.mark.parametrize("statement", ["UPDATE events SET kind = 'x'", "DELETE FROM events", "REPLACE INTO events "
                                       "SELECT seq, 0, job_id, attempt, 'x', data FROM events"])  # fmt: skip
def test_events_are_only_ever_added(store: Store, tmp_path: Path, statement: str) -> None:
    add(store)
    before = store.events()
    raw = sqlite3.connect(tmp_path / "rung.db")
    raw.execute("PRAGMA recursive_triggers = ON")
    with pytest.raises(sqlite3.IntegrityError, match="only ever added"):
        raw.execute(statement)
    raw.close()
    assert store.events() == before


def test_events_after_a_given_one_can_be_read(store: Store) -> None:
    first, second = add(store), add(store, "b")
    seen = store.events()[0].seq
    assert [event.job_id for event in store.events(after=seen)] == [second]
    assert store.events(first, after=seen) == []


def test_a_job_is_found_by_id_or_as_the_newest_of_its_name(store: Store) -> None:
    first, second, third = add(store, "a"), add(store, "a"), add(store, "a-1")
    assert (first, second, third) == ("a-1", "a-2", "a-1-3")
    assert store.find("a").id == second
    assert store.find("a-1").id == first  # an id before a name
    assert store.find("a-1-3").id == third
    with pytest.raises(UsageError, match=r"no job 'x'; `rung queue` lists them"):
        store.find("x")
    with pytest.raises(UsageError):
        store.job("' OR 1=1 --")


def test_active_jobs_are_those_that_have_not_ended(store: Store) -> None:
    first, second = add(store), add(store)
    with store.transaction():
        store.move(first, JobState.CANCELLED, reason="enough", at=2.0)
    assert [job.id for job in store.jobs(active=True)] == [second]
    assert [job.id for job in store.jobs()] == [first, second]


def test_the_first_verdict_on_a_file_stays(store: Store) -> None:
    job_id = add(store)
    with store.transaction():
        store.put_verdict(job_id, "f:1:2.0", CheckpointVerdict("healthy", 5, "all finite", "torch"))
        store.put_verdict(job_id, "f:1:2.0", CheckpointVerdict("poisoned"))
    assert store.verdicts(job_id) == {"f:1:2.0": CheckpointVerdict("healthy", 5, "all finite", "torch")}


floats = st.floats()
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
steps = st.none() | st.integers(0, 2**53)
attempts = st.builds(
    Attempt,
    job_id=st.just("a-1"),
    number=st.integers(1, 100),
    host=texts,
    asked=st.builds(Knobs, lr=st.none() | st.floats(1e-9, 1e9), precision=st.sampled_from(list(Precision))),
    rung=st.none() | texts,
    because=texts,
    by_person=st.booleans(),
    skipped=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    undone=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    resumed_from=st.none() | texts,
    planned_step=steps,
    effective=st.dictionaries(texts, st.none() | st.floats(allow_nan=False, allow_infinity=False) | texts, max_size=3),
    furthest_step=steps,
    loss=st.none() | floats,
    metrics=st.dictionaries(texts, floats, max_size=3),
    fault=st.none() | st.builds(Fault, kind=st.sampled_from(list(FaultKind)), evidence=texts, line=steps, step=steps),
    outcome=st.sampled_from(list(Outcome)),
    started_at=st.none() | st.floats(0, 1e10),
)


@given(attempts)
def test_an_attempt_comes_back_as_it_was_also_with_nan_and_inf(attempt: Attempt) -> None:
    row: Any = {"data": attempt_to_json(attempt)}
    assert json.loads(row["data"], parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    back = attempt_from_row(row)
    # NaN is not equal to itself, but its text is.
    assert repr(back) == repr(attempt)


def test_a_loss_that_is_nan_survives_the_store(store: Store) -> None:
    job_id = add(store)
    with store.transaction():
        store.put_attempt(Attempt(job_id, 1, "h", Knobs(), None, "w", loss=math.nan, metrics={"val": -math.inf}))
    (back,) = store.attempts(job_id)
    assert back.loss is not None and math.isnan(back.loss)
    assert back.metrics == {"val": -math.inf}


def test_an_event_with_nan_or_inf_is_stored_as_valid_json(store: Store, tmp_path: Path) -> None:
    job_id = add(store)
    with store.transaction():
        data = {"lr": {"asked": 0.1, "effective": math.nan}, "many": [math.inf, 1.0]}
        store.add_event(job_id, 1, "not_taken", data, at=1.0)
    assert store.events()[-1].data == {"lr": {"asked": 0.1, "effective": "nan"}, "many": ["inf", 1.0]}


def test_putting_an_attempt_again_replaces_it(store: Store) -> None:
    job_id = add(store)
    for because in ("first", "second"):
        with store.transaction():
            store.put_attempt(Attempt(job_id, 1, "h", Knobs(), None, because))
    assert [attempt.because for attempt in store.attempts(job_id)] == ["second"]


def leased(job_id: str, number: int, *uuids: str) -> Attempt:
    gpus = tuple(Gpu("NVIDIA A100-SXM4-40GB", (8, 0), 0, uuid, 1) for uuid in uuids)
    return Attempt(
        job_id,
        number,
        "ampere",
        Knobs(),
        None,
        "why",
        gpus=gpus,
        image="i",
        engine=DOCKER,
        checkpoint_from=("turing", 2),
    )


def test_a_second_lease_of_a_gpu_rolls_its_transaction_back(store: Store) -> None:
    first, second = add(store), add(store)
    with store.transaction():
        store.lease(leased(first, 1, "GPU-1", "GPU-2"), at=1.0)
    with pytest.raises(EngineError, match="leased already"), store.transaction():
        store.put_attempt(leased(second, 1, "GPU-3", "GPU-2"))
        store.lease(leased(second, 1, "GPU-3", "GPU-2"), at=2.0)
    assert [(lease.gpu, lease.job_id) for lease in store.leases()] == [("GPU-1", first), ("GPU-2", first)]
    assert store.attempts(second) == []


def test_a_lease_passes_to_the_next_attempt_and_ends_with_the_job(store: Store) -> None:
    job = add(store)
    with store.transaction():
        store.lease(leased(job, 1, "GPU-1", "GPU-2"), at=1.0)
        store.lease(leased(job, 2, "GPU-2"), at=2.0)
    assert [(lease.gpu, lease.attempt) for lease in store.leases()] == [("GPU-2", 2)]
    with store.transaction():
        store.move(job, JobState.CANCELLED, reason="r", at=3.0)
    assert store.leases() == []


def test_the_gpu_of_a_lost_attempt_is_leased_until_the_attempt_is_removed(store: Store) -> None:
    job = add(store)
    lost = leased(job, 1, "GPU-1")
    with store.transaction():
        store.lease(lost, at=1.0)
        store.give_up(lost, at=2.0)
        store.lease(leased(job, 2, "GPU-9"), at=3.0)
        store.move(job, JobState.CANCELLED, reason="r", at=4.0)
    assert [lease.gpu for lease in store.leases()] == ["GPU-1"]
    (orphan,) = store.orphans()
    assert (orphan.job_id, orphan.attempt, orphan.host) == (job, 1, "ampere")
    with store.transaction():
        store.remove_orphan(orphan)
    assert (store.leases(), store.orphans()) == ([], [])


def on_two(job: str, number: int, *gpus: str) -> Attempt:
    """Return an attempt on ampere and on turing, each with one of these GPUs."""
    attempt = leased(job, number, *gpus)
    first, second = attempt.gpus
    return replace(attempt, gpus=(first,), members=(Member("turing", (second,)),), nodes=2)


def test_the_gpus_of_all_hosts_of_an_attempt_are_leased_together_or_none_is(store: Store) -> None:
    first, second = add(store), add(store)
    with store.transaction():
        store.lease(on_two(first, 1, "GPU-1", "GPU-2"), at=1.0)
    taken = [(lease.host, lease.gpu) for lease in store.leases()]
    assert taken == [("ampere", "GPU-1"), ("turing", "GPU-2")]
    # Its GPU on the leading host is free, the other one is not.
    with pytest.raises(EngineError, match=r"^turing: .* GPU-2 is leased already"), store.transaction():
        store.lease(on_two(second, 1, "GPU-9", "GPU-2"), at=2.0)
    assert [(lease.host, lease.gpu) for lease in store.leases()] == taken


def test_each_host_of_a_lost_attempt_is_asked_by_itself(store: Store) -> None:
    job = add(store)
    lost = on_two(job, 1, "GPU-1", "GPU-2")
    with store.transaction():
        store.lease(lost, at=1.0)
        store.give_up(lost, at=2.0)
        store.move(job, JobState.CANCELLED, reason="r", at=4.0)
    first, second = store.orphans()
    assert {first.host, second.host} == {"ampere", "turing"}
    with store.transaction():
        store.remove_orphan(first)
    assert [lease.host for lease in store.leases()] == [second.host] and store.orphans() == [second]


def test_an_attempt_on_several_hosts_comes_back_as_it_was(store: Store) -> None:
    job = add(store)
    attempt = on_two(job, 1, "GPU-1", "GPU-2")
    with store.transaction():
        store.put_attempt(attempt)
    assert store.attempts(job) == [attempt]


def test_an_attempt_on_a_host_comes_back_as_it_was(store: Store) -> None:
    job = add(store)
    attempt = replace(leased(job, 1, "GPU-1"), unreachable_since=5.0, host_lost=True, residence=3)
    with store.transaction():
        store.put_attempt(attempt)
    assert store.attempts(job) == [attempt]


def test_a_file_that_is_no_store_is_reported_and_left_alone(home: Path, rung: Rung) -> None:
    home.mkdir()
    path = home / "rung.db"
    path.write_bytes(b"not a database at all, " * 100)
    ran = rung("queue")
    assert (ran.code, ran.out) == (2, "")
    advice = "check the file and its permissions, or set RUNG_HOME to another folder"
    assert ran.err == f"rung: {path}: file is not a database; {advice}\n"
    assert path.read_bytes() == b"not a database at all, " * 100


def test_a_folder_in_the_stores_place_is_reported(home: Path, rung: Rung) -> None:
    (home / "rung.db").mkdir(parents=True)
    ran = rung("queue")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith(f"rung: {home}/rung.db: unable to open database file; check the file")


def test_a_torn_page_is_reported(home: Path, rung: Rung) -> None:
    home.mkdir()
    store = Store(home / "rung.db")
    for _ in range(50):
        add(store)
    store.close()
    content = bytearray((home / "rung.db").read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    (home / "rung.db").write_bytes(content)
    ran = rung("queue")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "malformed" in ran.err


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE jobs SET spec = '[]'",
        "UPDATE jobs SET spec = 'x'",
        "UPDATE jobs SET state = 'DREAMING'",
        "UPDATE jobs SET knobs = '{}'",
        "UPDATE attempts SET data = '{}'",
        "UPDATE attempts SET data = '[]'",
    ],
)
def test_a_row_changed_by_somebody_else_is_reported(store: Store, tmp_path: Path, statement: str) -> None:
    job_id = add(store)
    with store.transaction():
        store.put_attempt(Attempt(job_id, 1, "h", Knobs(), None, "w"))
    store._db.execute(statement)
    with pytest.raises(StoreError, match="a row cannot be read"):
        store.jobs()
        store.attempts(job_id)


WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.store import Store
path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store = Store(path)
print("open", flush=True)
sys.stdin.readline()
for number in range(count):
    with store.transaction():
        job = store.add_job(JobSpec(name=name, run=("x",)), path, at=float(number))
        store.add_event(job.id, None, "mine", {"number": number}, at=0.0)
"""


def test_two_writing_processes_lose_nothing(tmp_path: Path) -> None:
    path, count = tmp_path / "rung.db", 60
    # Both also create the store; the second one finds it.
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name, str(count)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ),
        )
        for name in ("left", "right")
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "open\n"
    for writer in writers:
        _, errors = pace.communicate(writer, "go\n", usual=60)
        assert (writer.returncode, errors) == (0, "")
    store = Store(path)
    jobs = store.jobs()
    assert len(jobs) == len({job.id for job in jobs}) == 2 * count
    for name in ("left", "right"):
        mine = [job.id for job in jobs if job.spec.name == name]
        reported = [event.data["number"] for event in store.events() if event.kind == "mine" and event.job_id in mine]
        assert reported == list(range(count))
    assert [event.seq for event in store.events()] == list(range(1, 4 * count + 1))
    store.close()


def test_a_store_that_another_process_locks_for_too_long_is_reported(tmp_path: Path) -> None:
    first, second = Store(tmp_path / "rung.db"), Store(tmp_path / "rung.db")
    second._db.execute("PRAGMA busy_timeout = 50")
    with first.transaction():
        first.add_job(SPEC, Path("/"), at=1.0)
        with pytest.raises(StoreError, match="locked; another process is writing; try again"), second.transaction():
            pytest.fail("two at once")
    assert len(second.jobs()) == 1
    first.close()
    second.close()


@pytest.mark.parametrize(("image", "engine"), [("x", DOCKER), (None, PROCESS)])
def test_in_an_older_store_the_image_tells_the_engine_of_an_attempt(
    store: Store, image: str | None, engine: EngineKind
) -> None:
    job_id = add(store)
    with store.transaction():
        store.put_attempt(Attempt(job_id, 1, "h", Knobs(), None, "", image=image))
        store._db.execute("UPDATE attempts SET data = json_remove(data, '$.engine', '$.node', '$.ended_by')")
    (attempt,) = store.attempts(job_id)
    assert (attempt.engine, attempt.node, attempt.ended_by) == (engine, None, None)
