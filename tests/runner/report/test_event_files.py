"""Tests `rung export tensorboard`: TensorBoard itself reads what was written; and what is said when nothing can be."""

from __future__ import annotations

import math
import resource
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Job, Outcome
from rung.jobs.model.errors import StoreError
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.model.trial import Candidate, Trial
from rung.recovery.logs.reading import Reading
from rung.runner.report.curves import read_series
from rung.runner.report.event_files import write_runs
from rung.runner.report.event_runs import event_runs
from rung.runner.series.write import SeriesWriter
from tests.support.web_home import WebHome
from tests.trackers.folders import TENSORBOARD

RunRung = Callable[..., tuple[int, str, str]]
PICTURE = "![](http://elsewhere/x.png) <img src=x> \x1b[31m\u202e"
TRIAL = "trials/attempt-2-lower_lr-x0.1"


@pytest.fixture
def web_home(home: Path) -> Iterator[WebHome]:
    with closing(WebHome(home)) as made:
        yield made


def write_series(home: WebHome, job: Job, number: int, losses: dict[int, float]) -> None:
    """Write the series as the controller does, each reading a second after the one before."""
    paths, at = home.paths.attempt(job.id, number), [1000.0 * number]
    paths.log.parent.mkdir(parents=True, exist_ok=True)
    writer = SeriesWriter(paths, lambda: at[0])
    for step, loss in losses.items():
        at[0] += 1
        writer.add(step, Reading(loss=loss, lr=0.5))
        writer.write(live=True)


@pytest.fixture
def job(web_home: WebHome) -> Job:
    """Return a job with a NaN at step 12, a trial from step 10 on, and a run from step 10 to the end."""
    job = web_home.add("mmgcn", JobState.SUCCEEDED, "finished")
    fault = Fault(FaultKind.NAN_LOSS, "loss is nan", line=7, step=12, note=PICTURE)
    trial = Trial(1, 0, (Candidate("lower_lr", Knobs(lr=1e-4), 0.1),), 10, 12, 14, 100)
    again = {"planned_step": 10, "resumed_from": "step_10.pt"}
    web_home.attempt(job, 1, furthest_step=12, fault=fault, outcome=Outcome.FAULT, ended_at=1500.0)
    web_home.attempt(job, 2, trial=trial, furthest_step=11, outcome=Outcome.STOPPED, **again)
    web_home.attempt(job, 3, rung="lower_lr", because="lr 1 -> 0.1", furthest_step=20, started_at=2900.0, **again)
    write_series(web_home, job, 1, {step: math.nan if step == 12 else 1 / step for step in range(1, 13)})
    write_series(web_home, job, 2, {11: 0.5})
    write_series(web_home, job, 3, {step: 1 / step for step in range(11, 21)})
    return job


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Any]:
    """Return TensorBoard's own reader of a run."""
    assert (TENSORBOARD / "ready").exists(), "TensorBoard is not installed for the tests: `make test` does that"
    monkeypatch.syspath_prepend(str(TENSORBOARD))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return lambda folder: EventAccumulator(str(folder)).Reload()


def test_tensorboard_reads_one_curve_of_what_counted_and_the_rest_as_runs_of_their_own(
    job: Job, run_rung: RunRung, read: Callable[[Path], Any], tmp_path: Path
) -> None:
    folder = tmp_path / "curves"
    names = f"run, thrown-away/attempt-1, {TRIAL}"
    said = f"wrote {names} into {folder}; see them with: tensorboard --logdir {folder}\n"
    assert run_rung("export", "tensorboard", "mmgcn", "-o", folder) == (0, said, "")
    own, lost, trial = (read(folder / name) for name in names.split(", "))
    assert own.Tags()["scalars"] == ["loss", "lr"]
    losses = own.Scalars("loss")
    assert [each.step for each in losses] == [*range(1, 21)]
    assert [each.value for each in losses] == [pytest.approx(1 / step) for step in range(1, 21)]
    # Each at the time when it was read: ten of the first attempt, ten of the third.
    assert [each.wall_time for each in losses] == [*range(1001, 1011), *range(3001, 3011)]
    assert [each.step for each in lost.Scalars("loss")] == [10, 11, 12] and math.isnan(lost.Scalars("loss")[-1].value)
    assert [(each.step, each.value) for each in trial.Scalars("loss")] == [(11, 0.5)]


def test_faults_and_rungs_are_texts_at_their_steps_that_show_no_picture(
    job: Job, run_rung: RunRung, read: Callable[[Path], Any], tmp_path: Path
) -> None:
    assert run_rung("export", "tensorboard", "mmgcn", "-o", tmp_path / "curves")[0] == 0
    own = read(tmp_path / "curves" / "run")
    found = {tag: own.Tensors(tag) for tag in own.Tags()["tensors"]}
    assert sorted(found) == ["fault", "rung"]
    ((fault,), (rung,)) = found["fault"], found["rung"]
    assert (fault.step, fault.wall_time, rung.step, rung.wall_time) == (12, 1500.0, 10, 2900.0)
    (text,) = fault.tensor_proto.string_val
    # Four spaces: Markdown shows the rest as it is.
    assert text.decode().startswith("    nan_loss at step 12") and text.decode().isprintable()
    assert b"![](http://elsewhere/x.png)" in text and rung.tensor_proto.string_val[0] == b"    attempt 3: lr 1 -> 0.1"


def test_what_cannot_be_exported_is_one_line_and_changes_nothing(
    job: Job, web_home: WebHome, run_rung: RunRung, tmp_path: Path
) -> None:
    web_home.add("silent", JobState.FAILED, "it said nothing")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()

    def refused(name: str, folder: str) -> str:
        code, out, err = run_rung("export", "tensorboard", name, "-o", tmp_path / folder)
        assert (code, out, err.count("\n")) == (2, "", 1)
        return err

    assert "there is no job" in refused("nobody", "new")
    assert "silent-2 has shown no numbers" in refused("silent", "new")
    assert "is there already and is no empty folder; name a new one" in refused("mmgcn", "full")
    assert "is there already and is no empty folder" in refused("mmgcn", "full/mine")
    assert "cannot be written there: No such file or directory" in refused("mmgcn", "no/folder")
    assert {each.name for each in tmp_path.iterdir()} == {"home", "full"}
    assert [each.name for each in (tmp_path / "full").iterdir()] == ["mine"]


def test_a_disk_that_is_full_leaves_no_half_of_it(job: Job, web_home: WebHome, tmp_path: Path) -> None:
    attempts = web_home.store.attempts(job.id)
    runs = event_runs(job, attempts, read_series(job, attempts, web_home.paths))
    target = tmp_path / "curves"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
    try:
        with pytest.raises(StoreError, match="the event files cannot be written there: File too large"):
            write_runs(target, runs)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not target.exists()
    target.mkdir()
    write_runs(target, runs)
    assert sorted(each.name for each in target.iterdir()) == ["run", "thrown-away", "trials"]
