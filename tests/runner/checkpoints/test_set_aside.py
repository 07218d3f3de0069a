"""Tests what is set aside before an attempt starts: everything newer than the checkpoint it resumes from, once."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt, Job
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.checkpoints.set_aside import Query, files_to_set_aside, is_new_folder, move_aside
from rung.runner.engines.process import ProcessEngine
from rung.runner.seams.engine import FileEntry, Request
from tests.support.pretend import World

FIRST = Attempt("a-1", 1, "localhost", Knobs(), None, "", started_at=100.0, ended_at=200.0, furthest_step=90)


def a_job(**checkpoint: Any) -> Job:
    spec = JobSpec.model_validate({"name": "a", "run": "x", "checkpoint": checkpoint})
    return Job("a-1", spec, JobState.LAUNCHING, "", 0.0, 0.0, spec.knobs.knobs())


def a_query(resumed_from: str | None, step: int | None, *earlier: Attempt, **checkpoint: Any) -> Query:
    second = Attempt("a-1", 2, "localhost", Knobs(), None, "", resumed_from=resumed_from, planned_step=step)
    return Query(a_job(**checkpoint), second, earlier or (FIRST,), {})


def files(**written: float) -> list[FileEntry]:
    return [FileEntry(name.replace("__", "."), 9, at) for name, at in written.items()]


def test_files_newer_than_the_chosen_one_are_set_aside_whatever_their_name() -> None:
    found = files(step_40__pt=140.0, step_50__pt=150.0, last__pt=151.0, best__pt=130.0, events__log=160.0)
    assert files_to_set_aside(found, a_query("step_40.pt", 40)) == ["step_50.pt", "last.pt"]


def test_from_scratch_everything_that_earlier_attempts_wrote_is_set_aside_and_nothing_a_person_put_there() -> None:
    found = files(step_40__pt=140.0, pretrained__pt=50.0, best__ckpt=150.0)
    assert files_to_set_aside(found, a_query(None, None)) == ["step_40.pt", "best.ckpt"]


def test_the_steps_in_the_jobs_log_decide_which_one_is_newer() -> None:
    logged = replace(FIRST, saved={"model_a.pt": 30, "model_b.pt": 60})
    found = files(model_a__pt=150.0, model_b__pt=140.0, step_40__pt=145.0)
    assert files_to_set_aside(found, a_query("step_40.pt", 40, logged)) == ["model_b.pt"]


def test_the_one_file_stays_only_if_it_is_the_chosen_version() -> None:
    names = ("ckpt.rung-step-40.pt", "ckpt.rung-step-50.pt", "ckpt.pt")
    found = [FileEntry(name, 9, at) for name, at in zip(names, (140.0, 150.0, 150.0), strict=True)]
    query = a_query("ckpt.rung-step-40.pt", 40, pattern="ckpt.pt")
    assert files_to_set_aside(found, query) == ["ckpt.rung-step-50.pt", "ckpt.pt"]
    newest = a_query("ckpt.rung-step-50.pt", 50, pattern="ckpt.pt")
    assert files_to_set_aside(found, newest) == []
    assert files_to_set_aside(found, a_query(None, None, pattern="ckpt.pt")) == list(names)
    # A name that says nothing by itself.
    other = [FileEntry("weights", 9, 150.0), FileEntry("weights.rung-t99", 9, 140.0)]
    assert files_to_set_aside(other, a_query("weights.rung-t99", 40, pattern="weights")) == ["weights"]


def test_nothing_is_set_aside_when_no_attempt_has_started() -> None:
    assert files_to_set_aside(files(step_40__pt=140.0), a_query(None, None, replace(FIRST, started_at=None))) == []


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    paths = AttemptPaths(tmp_path / "attempts" / "2")
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for step in (40, 50):
        (folder / f"step_{step}.pt").write_bytes(b"x")
        os.utime(folder / f"step_{step}.pt", (100.0 + step, 100.0 + step))
    (folder / "step_60").mkdir()
    (folder / "step_60" / "model.safetensors").write_bytes(b"y")
    return Request("a-1", 2, ("python",), tmp_path, {}, paths, folder)


def test_it_is_moved_within_the_jobs_own_folder_and_a_second_time_changes_nothing(request_: Request) -> None:
    engine, query = ProcessEngine(), a_query("step_40.pt", 40, pattern="step_*")
    first = move_aside(engine, request_, query)
    again = move_aside(engine, request_, query)
    assert set(first.names) == set(again.names) == {"step_50.pt", "step_60"} and first.aside is not None
    assert (first.aside / "step_60" / "model.safetensors").read_bytes() == b"y"
    assert [path.name for path in request_.checkpoint_dir.iterdir()] == ["step_40.pt"]
    assert first.aside == request_.paths.folder.parents[1] / ".set-aside" / "attempt-2"


def test_where_nothing_can_have_been_moved_before_only_the_folder_itself_is_listed(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, query, listed = ProcessEngine(), a_query("step_60", 60, pattern="step_*"), list[Path]()
    listing = engine.list_files
    monkeypatch.setattr(
        engine, "list_files", lambda asked, pattern: (listed.append(asked.checkpoint_dir), listing(asked, pattern))[1]
    )
    assert move_aside(engine, request_, query, is_first_try=True).names == ()
    assert listed == [request_.checkpoint_dir]
    move_aside(engine, request_, query)
    assert len(listed) == 3, "files that an earlier controller has moved are found again"


@pytest.mark.parametrize(
    ("residence", "folder", "is_new"),
    [(2, "checkpoints", True), (1, "checkpoints", False), (2, "/data/ckpt", False), (2, "../elsewhere", False)],
)
def test_the_first_attempt_in_a_residence_has_an_empty_folder_if_that_is_the_jobs_own(
    residence: int, folder: str, is_new: bool
) -> None:
    query = a_query(None, None, dir=folder)
    assert is_new_folder(replace(query, attempt=replace(query.attempt, residence=residence))) is is_new


@pytest.mark.parametrize("folder", ["/data/ckpt", "../elsewhere"])
def test_a_folder_that_is_not_the_jobs_own_is_left_as_it_is(request_: Request, folder: str) -> None:
    result = move_aside(ProcessEngine(), request_, a_query("step_40.pt", 40, dir=folder, pattern="step_*"))
    assert set(result.names) == {"step_50.pt", "step_60"} and result.aside is None
    assert len(list(request_.checkpoint_dir.iterdir())) == 3


def test_a_file_that_cannot_be_moved_is_recorded_and_stops_nothing(request_: Request) -> None:
    (request_.paths.folder.parents[1] / ".set-aside").write_text("in the way")
    result = move_aside(ProcessEngine(), request_, a_query("step_40.pt", 40))
    assert "could not be set aside" in result.error and (request_.checkpoint_dir / "step_50.pt").exists()


def test_on_a_host_files_are_set_aside_before_the_attempt_starts_and_again_by_the_next_controller(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, {"ampere": ["A100"]})
    ampere = world.engine("ampere")
    ampere.files["checkpoints"] = files(step_40__pt=2.0, step_50__pt=3.0)
    try:
        job = world.submit("a", "A100:1")
        world.until(lambda: world.is_running(job))
        ampere.end(f"{job}/1", code=1)
        world.until(lambda: ampere.moved)
        world.restart()
        world.until(lambda: f"{job}/2" in ampere.there)
        recorded = [event.data["files"] for event in world.store.events(job) if event.kind == "set_aside"]
        assert ampere.moved[0] == ("step_40.pt", "step_50.pt") and set(ampere.moved[1:]) <= {()}
        assert recorded == [["step_40.pt", "step_50.pt"]]
        done = [call for call in ampere.calls if call[0] in ("move", "start")]
        moves = [("move", "/rung/files/set-aside/1/attempt-2")] * len(ampere.moved)
        assert done == [("start", f"{job}/1"), *moves, ("start", f"{job}/2")]
    finally:
        world.close()
