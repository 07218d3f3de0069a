"""Tests jobs that begin at a checkpoint of another job, on hosts: which one, where it goes, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import UsageError
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.decide.checkpoint_choice import MIRROR, Checkpoint
from rung.runner.checkpoints.start_from import _refuse_overwriting, parse_start, start_point
from rung.runner.launch.submit import submit
from rung.runner.seams.engine import FileEntry, Request
from tests.support.pretend import IMAGE, World, worlds


@pytest.mark.parametrize(
    ("text", "job", "step"),
    [
        ("a", "a", None), ("a-1@500", "a-1", 500), ("me@home", "me@home", None), ("me@home@7", "me@home", 7),
        ("a@", "a@", None), ("@7", "@7", None), ("a@-1", "a@-1", None),
    ],
)  # fmt: skip
def test_the_step_stands_behind_the_job(text: str, job: str, step: int | None) -> None:
    assert parse_start(text) == (job, step)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Return a world with a job on ampere that has saved steps 10, 20 and 30, the last of them poisoned."""
    with worlds(tmp_path, ampere=["A100"], turing=["TITANRTX"]) as build:
        made = build()
        made.submit("first", "A100")
        made.until(lambda: made.is_running("first-1"))
        engine = made.engine("ampere")
        engine.save("first-1/1", 10, 20, 30)
        engine.verdicts["step_30.pt"] = {"verdict": "poisoned", "step": 30, "detail": "w has a NaN"}
        made.until(lambda: made.last("first-1").furthest_step == 30)

        def fetch(request: Request, entry: FileEntry, to: Path) -> Path:
            (to / entry.name).write_bytes(entry.name.encode())
            os.utime(to / entry.name, (entry.written_at, entry.written_at))
            return to / entry.name

        engine.fetch = fetch  # type: ignore[method-assign]
        yield made


def begin(world: World, step: int | None = None, **fields: Any) -> str:
    """Submit a job for turing that begins at a checkpoint of the first one."""
    spec = {"name": "second", "run": "x", "image": IMAGE, "resources": {"gpu": ["TITANRTX"]}, **fields}
    made = JobSpec.model_validate(spec)
    with start_point(world.controller._context, world.job("first-1"), step, made) as point:
        job = submit(
            world.store,
            made,
            world.folder,
            at=world.now,
            about=point.describe(),
            on_added=lambda job: point.give_to(world.store, job, world.controller._context.paths),
        )
    return job.id


@pytest.mark.parametrize(("asked", "step"), [(None, 20), (20, 20), (10, 10)])
def test_the_first_attempt_gets_the_newest_healthy_checkpoint_or_that_of_the_step(
    world: World, asked: int | None, step: int
) -> None:
    job_id = begin(world, asked)
    world.until(lambda: world.is_running(job_id))
    attempt = world.last(job_id)
    assert (attempt.number, attempt.host, attempt.checkpoint_from) == (1, "turing", MIRROR)
    assert (attempt.resumed_from, attempt.planned_step) == (f"step_{step}.pt", step)
    assert attempt.because == f"as submitted; it begins at step {step}, from step_{step}.pt"
    assert ("deliver", f"step_{step}.pt") in world.engine("turing").calls
    request = world.engine("turing").requests[f"{job_id}/1"]
    assert request.env["RUNG_CHECKPOINT"] == f"/rung/job/checkpoints/step_{step}.pt"
    (event, *_) = world.store.events(job_id)
    assert event.data["from"] == {"job": "first-1", "step": step, "file": f"step_{step}.pt"}


def test_a_job_without_a_start_begins_from_scratch(world: World) -> None:
    job_id = world.submit("plain", "TITANRTX")
    world.until(lambda: world.is_running(job_id))
    assert (world.last(job_id).resumed_from, world.last(job_id).because) == (None, "as submitted")


def test_a_copy_here_is_used_if_the_host_of_the_other_job_is_away(world: World) -> None:
    begin(world, 10)
    # What the first job has here: the copy of its step 10, with a verdict.
    mirror = world.controller._context.paths.mirror
    copy = mirror("second-2") / "step_10.pt"
    mirror("first-1").mkdir(parents=True)
    copy.rename(mirror("first-1") / copy.name)
    with world.store.transaction():
        for fingerprint, verdict in world.store.verdicts("second-2").items():
            world.store.put_verdict("first-1", fingerprint, verdict)
    world.engine("ampere").away = True
    job_id = begin(world)
    assert (mirror(job_id) / "step_10.pt").read_bytes() == b"step_10.pt"
    assert (mirror("first-1") / "step_10.pt").exists(), "it is copied, not moved"


@pytest.mark.parametrize(
    ("step", "fields", "message"),
    [
        (30, {}, "--from first-1@30: it has no healthy checkpoint of step 30; the one before it is of step 20"),
        (5, {}, "--from first-1: it has no healthy checkpoint up to step 5; `rung checkpoints` lists them"),
        (
            None,
            {"checkpoint": {"pattern": "model-*"}},
            "step_20.pt does not match checkpoint.pattern of second, model-*",
        ),
    ],
)
def test_what_cannot_be_a_start_is_refused_and_leaves_nothing(
    world: World, step: int | None, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        begin(world, step, **fields)
    assert message in str(refused.value)
    assert [job.id for job in world.store.jobs()] == ["first-1"]
    assert not list(world.folder.glob(".from-*"))


def test_a_job_that_was_not_started_has_no_checkpoint(world: World) -> None:
    waiting = world.submit("waiting", "A100")
    spec = JobSpec(name="n", run=("x",))
    context = world.controller._context
    with (
        pytest.raises(UsageError, match="it has not been started"),
        start_point(context, world.job(waiting), None, spec),
    ):
        pass


def test_a_folder_of_the_users_own_is_not_overwritten(world: World, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "step_20.pt").write_text("of somebody else")
    fields = {"image": None, "resources": {}, "checkpoint": {"dir": str(own)}}
    with pytest.raises(UsageError, match="of its own; give another"):
        begin(world, **fields)
    assert (own / "step_20.pt").read_text() == "of somebody else"
    assert begin(world, 10, **fields) == "second-2"


def test_a_file_of_the_users_own_is_not_overwritten_by_a_version(tmp_path: Path) -> None:
    spec = JobSpec.model_validate({"name": "n", "run": "x", "checkpoint": {"dir": str(tmp_path), "pattern": "ckpt.pt"}})
    version = Checkpoint("ckpt.rung-step-20.pt", 20, 100.0, size=7)
    _refuse_overwriting(version, spec)
    (tmp_path / "ckpt.pt").write_text("another")
    with pytest.raises(UsageError, match=r"has a ckpt\.pt of its own; give another"):
        _refuse_overwriting(version, spec)
    os.utime(tmp_path / "ckpt.pt", (100.0, 100.0))
    _refuse_overwriting(version, spec)


def test_what_is_not_given_away_is_removed(world: World) -> None:
    spec = JobSpec(name="n", run=("x",))
    with start_point(world.controller._context, world.job("first-1"), None, spec) as point:
        assert point.copy.read_bytes() == b"step_20.pt"
    assert not point.copy.exists() and not list(world.folder.glob(".from-*"))
