"""Tests what an engine's answers mean: the exit code is from the engine, and only the record proves the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.model.engine import EndedBy
from rung.runner.engines.docker.container_state import (
    ContainerState,
    Record,
    Status,
    outcome,
    parse_inspect,
    parse_record,
    parse_time,
)
from rung.runner.engines.on_host.done_record import from_dict, to_dict
from rung.runner.seams.engine import Observation, Presence


def container(status: str, **state: Any) -> dict[str, Any]:
    return {"State": {"Status": status, "StartedAt": "0001-01-01T00:00:00Z", **state}}


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (None, Status.ABSENT),
        (container("created"), Status.CREATED),
        (container("running"), Status.RUNNING),
        (container("paused"), Status.RUNNING),
        (container("exited"), Status.ENDED),
        (container("dead"), Status.ENDED),
        (container("something new"), Status.RUNNING),
        ({}, Status.RUNNING),
    ],
)
def test_the_engines_state_is_one_of_four(found: dict[str, Any] | None, status: Status) -> None:
    assert parse_inspect(found).status is status


def test_times_are_read_and_the_zero_time_is_none() -> None:
    assert parse_time("1970-01-01T00:00:10.5Z") == 10.5
    assert parse_time("0001-01-01T00:00:00Z") is None
    assert parse_time(None) is None
    assert parse_time("rubbish") is None


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ("", Record()),
        ("began\n", Record(began=True)),
        ('done\n{"exit_code": 3, "ended_at": 5}   ', Record(True, 3, 5.0)),
        ("done\n" + " " * 128, Record(began=True)),
        ('done\n{"exit_code": 3', Record(began=True)),
        ("rubbish", Record()),
    ],
)
def test_a_record_counts_only_if_it_is_complete(text: str, record: Record) -> None:
    assert parse_record(text) == record


def ended(code: int, **more: Any) -> ContainerState:
    return ContainerState(Status.ENDED, code, 1.0, 2.0, **more)


@pytest.mark.parametrize(
    ("seen", "record", "expected"),
    [
        (ended(0), Record(True, 0, 2.0), Observation(Presence.ENDED, 0, None, "", 1.0, 2.0)),
        (ended(7), Record(True, 7, 2.0), Observation(Presence.ENDED, 7, None, "", 1.0, 2.0)),
        (ended(143), Record(True, 143, 2.0), Observation(Presence.ENDED, None, 15, "", 1.0, 2.0)),
        (ended(137), Record(True, 137, 2.0), Observation(Presence.ENDED, None, 9, "", 1.0, 2.0)),
        (ended(255), Record(True, 255, 2.0), Observation(Presence.ENDED, 255, None, "", 1.0, 2.0)),
        # The container was removed: only the record counts.
        (ContainerState(Status.ABSENT), Record(True, 4, 9.0), Observation(Presence.ENDED, 4, None, "", None, 9.0)),
    ],
)
def test_an_end_with_a_record_is_an_end(seen: ContainerState, record: Record, expected: Observation) -> None:
    end = outcome(seen, record)
    assert replace(end, ended_by=None) == expected
    assert from_dict(to_dict(end)) == end


@pytest.mark.parametrize("seen", [ended(0), ended(137), ended(255), ContainerState(Status.ABSENT)])
def test_an_end_without_a_record_is_lost_also_with_exit_code_0(seen: ContainerState) -> None:
    word = outcome(seen, Record(began=True))
    assert word.presence is Presence.LOST
    assert "no completion record" in word.detail


def test_an_end_from_lack_of_memory_is_reported() -> None:
    end = outcome(ended(137, out_of_memory=True), Record(True, 137, 2.0))
    assert "memory" in end.detail and end.ended_by is EndedBy.OUT_OF_MEMORY
    assert from_dict(to_dict(end)) == end


def test_only_an_exit_of_its_own_is_its_own_end() -> None:
    assert outcome(ended(3), Record(True, 3, 2.0)).ended_by is EndedBy.ITSELF
    assert outcome(ended(143), Record(True, 143, 2.0)).ended_by is None
    older = to_dict(outcome(ended(3), Record(True, 3, 2.0)))
    del older["ended_by"]  # as earlier versions wrote it
    assert (from_dict(older).exit_code, from_dict(older).ended_by) == (3, None)


def test_an_end_is_never_before_its_start() -> None:
    word = outcome(ContainerState(Status.ENDED, 7, started_at=2.018, ended_at=2.017), Record(True, 7, 2.0))
    assert (word.started_at, word.ended_at) == (2.018, 2.018)
