"""Tests the list of jobs: which are listed, and a table that fits the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.store import Store
from rung.runner.views.queue import HEADERS, WIDE, QueueFilter, queue, queue_table

NOW = 100_000.0
REASON = "nan_loss at step 520: the loss was finite until step 519; lower_lr (lr 0.001 -> 0.0001); resume at step 500"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Return a store with three jobs: an hour, ten minutes and five seconds old."""
    opened = Store(tmp_path / "rung.db")
    gpu = Gpu("NVIDIA A100-SXM4-40GB", (8, 0), uuid="GPU-1")
    with opened.transaction():
        old = opened.add_job(JobSpec(name="vision/large", run=("x",)), Path("/"), at=NOW - 3600)
        opened.move(old.id, JobState.LAUNCHING, reason="its turn", at=NOW - 3500)
        first = Attempt(old.id, 1, "ampere", Knobs(), None, "why", gpus=(gpu,), outcome=Outcome.FAULT)
        opened.put_attempt(Attempt(**{**vars(first), "started_at": NOW - 3400, "ended_at": NOW - 3300}))
        running = {**vars(first), "number": 2, "outcome": Outcome.PENDING, "started_at": NOW - 200}
        opened.put_attempt(Attempt(**{**running, "furthest_step": 520, "loss": 2.3456789}))
        opened.set_reason(old.id, REASON)
        failed = opened.add_job(JobSpec(name="vision/small", run=("x",)), Path("/"), at=NOW - 600)
        opened.move(failed.id, JobState.FAILED, reason="no host", at=NOW - 500)
        opened.add_job(JobSpec(name="audio", run=("x",)), Path("/"), at=NOW - 5)
    yield opened
    opened.close()


def listed(store: Store, **wanted: Any) -> list[str]:
    return [row["name"] for row in queue(store, NOW, QueueFilter(**wanted))]


def lines(store: Store, width: int) -> list[str]:
    return click.unstyle(queue_table(queue(store, NOW), width, NOW)).splitlines()


def test_the_newest_job_is_the_last(store: Store) -> None:
    assert listed(store) == ["vision/large", "vision/small", "audio"]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({"states": ("FAILED",)}, ["vision/small"]),
        ({"states": ("FAILED", "QUEUED")}, ["vision/small", "audio"]),
        ({"states": ("SUCCEEDED",)}, []),
        ({"name": "vision/*"}, ["vision/large", "vision/small"]),
        ({"name": "audi?"}, ["audio"]),
        ({"name": "vision"}, []),
        ({"since": NOW - 700}, ["vision/small", "audio"]),
        ({"since": NOW - 550}, ["audio"]),  # one that has failed since then is older
        ({"since": NOW + 1}, []),
        ({"limit": 1}, ["audio"]),
        ({"limit": 9}, ["vision/large", "vision/small", "audio"]),
        ({"name": "vision/*", "limit": 1}, ["vision/small"]),
        ({"name": "vision/*", "states": ("LAUNCHING",), "since": NOW - 4000}, ["vision/large"]),
    ],
)
def test_all_filters_must_match_and_the_limit_keeps_the_newest(
    store: Store, wanted: dict[str, Any], names: list[str]
) -> None:
    assert listed(store, **wanted) == names


def test_the_whole_table_shows_every_column(store: Store) -> None:
    head, old, failed, new = lines(store, WIDE)
    assert tuple(head.split()) == HEADERS
    # AGE since it was submitted; TIME in which an attempt ran: 100 s and 200 s.
    shown = ("vision-large-1", "vision/large", "LAUNCHING", "1h", "5m00s", "520", "2.346", "2", "ampere (A100)")
    assert re.split(r" {2,}", old) == [*shown, REASON]
    assert failed.split()[2:5] == ["FAILED", "10m", "-"] and failed.endswith("no host")
    assert new.split()[2:5] == ["QUEUED", "5s", "-"]


@pytest.mark.parametrize("width", [60, 80, 100, 132])
def test_every_line_fits_and_only_the_reason_is_shortened(store: Store, width: int) -> None:
    head, old, *others = lines(store, width)
    assert max(map(len, [head, old, *others])) <= width
    assert old.startswith("vision-large-1  ") and " LAUNCHING  1h " in old and " 5m00s " in old
    assert old.endswith("…") and old.split("  ")[-1].strip()[:-1] in REASON
    assert head.split()[-1] == "REASON" and set(head.split()) <= set(HEADERS)


def test_at_80_columns_the_reason_keeps_room_to_be_read(store: Store) -> None:
    head, old, *_ = lines(store, 80)
    assert 80 - head.index("REASON") >= 24
    assert REASON[:20] in old


def test_no_column_is_left_out_for_reasons_that_are_short(store: Store) -> None:
    with store.transaction():
        store.set_reason("vision-large-1", "its turn")
        store.set_reason("audio-3", "waits")
    assert tuple(lines(store, 102)[0].split()) == HEADERS
    assert "NAME" not in lines(store, 90)[0].split()


def test_a_long_id_stays_whole_at_80_columns(store: Store) -> None:
    with store.transaction():
        job = store.add_job(JobSpec(name="n" * 60, run=("x",)), Path("/"), at=NOW)
    found = lines(store, 80)
    assert max(map(len, found)) <= 80
    assert found[-1].startswith(f"{job.id}  ") and len(job.id) > 40


def test_the_time_of_an_ended_job_does_not_grow(store: Store) -> None:
    with store.transaction():
        store.move("vision-large-1", JobState.FAILED, reason="gone", at=NOW)
    assert queue(store, NOW + 5000)[0]["run_seconds"] == 300.0


def test_json_rows_have_the_time_run_and_when_they_were_submitted(store: Store) -> None:
    rows = queue(store, NOW)
    assert [(row["run_seconds"], row["submitted"]) for row in rows] == [
        (300.0, "1970-01-02T02:46:40Z"),
        (0.0, "1970-01-02T03:36:40Z"),
        (0.0, "1970-01-02T03:46:35Z"),
    ]


def test_a_job_at_a_site_shows_its_node_once_that_is_known(store: Store) -> None:
    audio = queue(store, NOW)[-1]["id"]
    for node, shown in ((None, "lab"), ("n[1-2]", "lab/n[1-2]")):
        with store.transaction():
            store.put_attempt(Attempt(audio, 1, "lab", Knobs(), None, "why", node=node))
        assert queue(store, NOW)[-1]["node"] == node
        assert shown in lines(store, WIDE)[-1].split()
