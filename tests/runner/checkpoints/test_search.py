"""Tests what the history records about checkpoints, and whether a job whose host is away can leave it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt, Job
from rung.jobs.model.engine import DOCKER, PROCESS, SLURM
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Member
from rung.jobs.model.host import Host
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.decide.checkpoint_choice import Checkpoint
from rung.runner.checkpoints.residences import residence_of
from rung.runner.checkpoints.search import CheckpointSearch
from rung.runner.checkpoints.whole_folder import Seen
from rung.runner.context import Clock, Context, Lasting
from rung.runner.engine_pool import RealEngines
from rung.runner.state.store import Store

COULD_NOT = Fault(FaultKind.UNKNOWN_EXIT, "exit code 1; last line: EOFError: Ran out of input")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    store = Store(tmp_path / "rung.db")
    engines = RealEngines({}, tmp_path, store.store_id)
    return Context(store, engines, HomePaths(tmp_path), {}, Clock(lambda: 5.0))


def a_job(context: Context, mode: str, *attempts: Attempt) -> Job:
    with context.store.transaction():
        spec = JobSpec.model_validate({"name": "a", "run": "x", "knobs": {"mode": mode}})
        job = context.store.add_job(spec, Path("/"), at=1.0)
        for attempt in attempts:
            context.store.put_attempt(attempt)
    return job


def reasons(context: Context, kind: str) -> list[str]:
    return [event.data["because"] for event in context.store.events() if event.kind == kind]


def test_a_quarantined_checkpoint_is_recorded_once(context: Context) -> None:
    second = Attempt("a-1", 2, "localhost", Knobs(), None, "", resumed_from="step_4.pt", fault=COULD_NOT)
    job = a_job(context, "flags", Attempt("a-1", 1, "localhost", Knobs(), None, ""), second)
    for _ in range(2):
        CheckpointSearch(context, lambda host: None)._take(Seen(2, 0.0), job, [Checkpoint("step_4.pt", 4, 1.0)])
    (because,) = reasons(context, "quarantined")
    assert because.startswith("step_4.pt is quarantined: attempt 2 could not load it")


@pytest.mark.parametrize(("mode", "times"), [("zero-edit", 1), ("flags", 0)])
def test_a_zero_edit_script_that_saves_nothing_is_recorded_once(context: Context, mode: str, times: int) -> None:
    job = a_job(context, mode, Attempt("a-1", 1, "localhost", Knobs(), None, ""))
    for _ in range(2):
        CheckpointSearch(context, lambda host: None)._take(Seen(1, 0.0), job, [])
    assert len(reasons(context, "no_checkpoint")) == times
    assert all("every relaunch begins at step 0" in because for because in reasons(context, "no_checkpoint"))


@pytest.mark.parametrize(
    ("away", "leaves"),
    [
        ({"ampere"}, True),  # the leading one: the others show its files
        ({"hopper"}, True),  # another one: the leading one does
        ({"ampere", "hopper"}, True),  # a third host has the folder
        ({"ampere", "hopper", "turing"}, False),
    ],
)
def test_a_job_on_several_hosts_can_leave_while_any_host_of_their_folder_answers(
    context: Context, away: set[str], leaves: bool
) -> None:
    names = ("ampere", "hopper", "turing")
    context.engines._hosts = tuple(  # type: ignore[attr-defined]
        Host(name, name, shared="/srv", shares_with=tuple(other for other in names if other != name)) for name in names
    )
    last = Attempt("a-1", 1, "ampere", Knobs(), None, "", engine=DOCKER, members=(Member("hopper"),), saved={"c": 5})
    job = a_job(context, "flags", last)
    found = CheckpointSearch(context, lambda host: Lasting(60.0, 1.0) if host in away else None)
    assert found.can_leave(job) is leaves


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, True),
        ({"host_lost": True}, False),
        ({"ended_at": None}, False),
        ({"engine": PROCESS}, False),
        ({"engine": SLURM}, False),
        ({"members": (Member("hopper"),)}, False),
    ],
)
def test_what_a_folder_holds_is_kept_only_where_all_that_was_written_there_can_be_seen(
    context: Context, changes: dict[str, Any], kept: bool
) -> None:
    last = replace(Attempt("a-1", 1, "ampere", Knobs(), None, "", engine=DOCKER, ended_at=2.0), **changes)
    if last.engine is PROCESS:
        last = replace(last, host="localhost")
    job, seen = a_job(context, "flags", last), Seen(1, 0.0)
    source = CheckpointSearch(context, lambda host: None)._source(job, residence_of(last), [last], seen)
    assert source.seen is (seen if kept else None)
