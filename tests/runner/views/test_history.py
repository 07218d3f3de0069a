"""Tests the data of the history, and the JSON that other programs use."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from rung.jobs.job import Attempt, Job, Outcome
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs, Precision
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.saturation import Saturation
from rung.jobs.model.state import JobState
from rung.jobs.model.trial import Candidate, Trial
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.store import Store
from rung.runner.views.history import history
from rung.runner.views.queue import queue
from rung.runner.views.tables import history_text
from rung.runner.views.times import local_time

Rung = Callable[..., Any]
QUEUE_KEYS = {"id", "name", "state", "reason", "host", "step", "loss", "recoveries"}
ATTEMPT_KEYS = {"number", "host", "asked", "effective", "fault", "rung", "because", "resumed_from", "resumed_step",
                "furthest_step", "steps_lost", "outcome"}  # fmt: skip


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    home.mkdir()
    opened = Store(home / "rung.db")
    yield opened
    opened.close()


@pytest.fixture
def job(store: Store) -> Job:
    """Return a job that failed once, got a rung that did not take, and goes on."""
    spec = JobSpec.model_validate({"name": "two tries", "run": "x {lr}", "knobs": {"lr": 1e-3, "mode": "inside"}})
    first = spec.knobs.knobs()
    fault = Fault(FaultKind.NAN_LOSS, "loss: nan", line=12, step=520, onset=515, shape="drift")
    with store.transaction():
        job = store.add_job(spec, Path("/"), at=1.0)
        store.move(job.id, JobState.LAUNCHING, reason="as submitted", at=2.0)
        store.put_attempt(
            Attempt(
                job.id, 1, "localhost", first, None, "as submitted", by_person=True, effective={"lr": 1e-3},
                first_step=0, furthest_step=520, loss=math.nan, metrics={"val_loss": math.inf}, fault=fault,
                latest={"lr": 1e-3, "ce": math.nan}, throughput={"it/s": 9.5}, outcome=Outcome.FAULT,
                progress_at=10.0, ended_at=36.0,
            )
        )  # fmt: skip
        asked = first.but(lr=1e-4)
        store.put_attempt(
            Attempt(
                job.id, 2, "localhost", asked, "lower_lr", "it drifted", skipped=(("raise_clip", "no spike"),),
                undone=(("fp32", "no use"),), resumed_from="step_500.pt", planned_step=500, resumed_step=500,
                effective={"lr": 1e-3}, furthest_step=600, loss=2.5, progress_at=40.0,
            )
        )  # fmt: skip
    return store.job(job.id)


def strict(text: str) -> Any:
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_the_queues_json_keeps_its_contract(job: Job, store: Store, rung: Rung) -> None:
    store.close()
    (row,) = strict(rung("queue", "--json").out)
    assert set(row) >= QUEUE_KEYS
    assert {name: row[name] for name in QUEUE_KEYS} == {
        "id": "two-tries-1", "name": "two tries", "state": "LAUNCHING", "reason": "as submitted", "host": "localhost",
        "step": 600, "loss": 2.5, "recoveries": 1,
    }  # fmt: skip


def test_the_historys_json_keeps_its_contract(job: Job, store: Store, rung: Rung) -> None:
    store.close()
    data = strict(rung("history", "--json", "two tries").out)
    assert set(data) >= {"job", "attempts"}
    assert set(data["job"]) >= QUEUE_KEYS
    first, second = data["attempts"]
    assert set(first) >= ATTEMPT_KEYS and set(second) >= ATTEMPT_KEYS
    assert (first["loss"], first["metrics"]) == ("nan", {"val_loss": "inf"})
    assert (first["latest"], first["throughput"]) == ({"lr": 1e-3, "ce": "nan"}, {"it/s": 9.5})
    assert first["series"] == second["series"] == []  # there is no log
    assert {name: first[name] for name in ("number", "steps_lost", "seconds_lost", "outcome", "rung")} == {
        "number": 1, "steps_lost": 20, "seconds_lost": 5.0, "outcome": "fault", "rung": None,
    }  # fmt: skip
    assert first["fault"] == {
        "fault": "nan_loss", "kind": "nan_loss", "evidence": "loss: nan", "line": 12, "step": 520, "onset": 515,
        "shape": "drift", "note": "", "source": "", "first_norm": None, "replay": {},
    }  # fmt: skip
    assert second["changed"] == {"lr": [1e-3, 1e-4]}
    assert second["not_taken"] == {"lr": {"asked": 1e-4, "effective": 1e-3}}
    assert second["skipped"] == [{"rung": "raise_clip", "reason": "no spike"}]
    assert second["undone"] == [{"rung": "fp32", "reason": "no use"}]
    assert (second["resumed_from"], second["resumed_step"]) == ("step_500.pt", 500)
    assert second["asked"]["lr"] == 1e-4 and second["effective"]["lr"] == 1e-3
    assert second["log"].endswith("/jobs/two-tries-1/attempts/2/log")
    assert [event["kind"] for event in data["events"]] == ["submitted", "state"]


def test_a_job_without_attempts_has_an_empty_history(store: Store) -> None:
    with store.transaction():
        job = store.add_job(JobSpec(name="new", run=("x",)), Path("/"), at=1.0)
    data = history(store, job, HomePaths(Path("/h")), 50.0)
    assert data["attempts"] == []
    assert (data["job"]["host"], data["job"]["step"], data["job"]["loss"]) == (None, None, None)
    assert [row["id"] for row in queue(store, 50.0)] == [job.id]


def test_trials_are_no_recoveries_and_the_one_that_goes_on_is(store: Store) -> None:
    tried = (Candidate("lower_lr", Knobs(lr=0.01)), Candidate("raise_clip", Knobs(lr=0.1, clip=1.0)))
    trials = [Trial(1, index, tried, 0, 50, 150, 400) for index in range(2)]
    with store.transaction():
        job = store.add_job(JobSpec(name="tried", run=("x",)), Path("/"), at=1.0)
        store.put_attempt(Attempt(job.id, 1, "h", Knobs(lr=0.1), None, "as submitted", by_person=True))
        for number, trial in enumerate(trials, start=2):
            asked = trial.candidate.knobs
            store.put_attempt(Attempt(job.id, number, "h", asked, trial.candidate.rung, "a trial", trial=trial))
    assert queue(store, 50.0)[0]["recoveries"] == 0
    rows = history(store, job, HomePaths(Path("/h")), 50.0)["attempts"]
    # Each trial changes the run that failed, and not the trial before it.
    assert [row["changed"] for row in rows[1:]] == [{"lr": [0.1, 0.01]}, {"clip": [None, 1.0]}]
    text = click.unstyle(history_text(history(store, job, HomePaths(Path("/h")), 50.0), diff=False))
    assert "attempt 2 on h: trial of lower_lr\n" in text and "attempt 3 on h: trial of raise_clip\n" in text
    with store.transaction():
        store.put_attempt(replace(store.attempts(job.id)[-1], trial=replace(trials[-1], won=True, goes_on=True)))
    assert queue(store, 50.0)[0]["recoveries"] == 1
    assert history(store, job, HomePaths(Path("/h")), 50.0)["job"]["recoveries"] == 1


def test_the_first_change_is_compared_with_the_job_file(store: Store) -> None:
    with store.transaction():
        job = store.add_job(JobSpec.model_validate({"name": "n", "run": "x", "knobs": {"lr": 1}}), Path("/"), at=1.0)
        asked = job.knobs.but(lr=0.5, precision=Precision.FP32)
        store.put_attempt(Attempt(job.id, 1, "h", asked, None, "a person set it", by_person=True))
    (row,) = history(store, job, HomePaths(Path("/h")), 50.0)["attempts"]
    assert row["changed"] == {"lr": [1.0, 0.5], "precision": ["amp_fp16", "fp32"]}


def test_the_historys_json_has_the_series_of_an_attempt(job: Job, store: Store, rung: Rung, home: Path) -> None:
    log = HomePaths(home).attempt(job.id, 1).log
    log.parent.mkdir(parents=True)
    lines = [f"step {step} | loss {1 / (step + 1)} | lr 1e-3" for step in range(3000)]
    log.write_text("\n".join([*lines[:1500], "step 1500 | loss nan | lr 1e-3", *lines[1501:]]))
    store.close()
    series = strict(rung("history", "--json", "two tries").out)["attempts"][0]["series"]
    assert len(series) <= 500
    assert series[0] == {
        "step": 0,
        "loss": 1.0,
        "grad_norm": None,
        "lr": 1e-3,
        "scale": None,
        "speed": None,
        "at": None,
    }
    assert [point["step"] for point in series] == sorted(point["step"] for point in series)
    assert [point["step"] for point in series if point["loss"] == "nan"] == [1500]


def test_the_history_shows_the_last_lr_loss_and_speed(job: Job, store: Store, rung: Rung) -> None:
    store.close()
    assert "last seen   lr 0.001, ce nan, 9.5 it/s" in rung("history", "two tries").out


A100 = Gpu("NVIDIA A100-SXM4-40GB", (8, 0), uuid="GPU-1")


@pytest.fixture
def timed(store: Store) -> Job:
    """Return a job that failed after 100 s on a GPU, and has run for 20 s again."""
    spec = JobSpec.model_validate({"name": "timed", "run": "x", "knobs": {"mode": "zero-edit"}})
    with store.transaction():
        job = store.add_job(spec, Path("/"), at=0.0)
        store.move(job.id, JobState.LAUNCHING, reason="its turn", at=5.0)
        first = Attempt(job.id, 1, "ampere", Knobs(), None, "as submitted", by_person=True, gpus=(A100, A100))
        store.put_attempt(
            replace(first, first_step=0, furthest_step=520, started_at=10.0, progress_at=12.0, ended_at=110.0,
                    outcome=Outcome.FAULT, effective={"clip": None})
        )  # fmt: skip
        second = replace(first, number=2, asked=Knobs(lr=0.01, clip=1.0), rung="lower_lr", by_person=False)
        store.put_attempt(replace(second, resumed_step=500, furthest_step=600, started_at=120.0, progress_at=121.0))
        third = replace(first, number=3, asked=Knobs(lr=0.01), by_person=False)
        store.put_attempt(third)
    return store.job(job.id)


def test_every_attempt_says_when_it_began_what_it_took_and_what_it_cost(timed: Job, store: Store) -> None:
    data = history(store, timed, HomePaths(Path("/h")), 140.0)
    cost = ("started", "ended", "seconds", "steps_made", "steps_lost", "gpu_seconds")
    assert [tuple(row[name] for name in cost) for row in data["attempts"]] == [
        ("1970-01-01T00:00:10Z", "1970-01-01T00:01:50Z", 100.0, 520, 20, 200.0),
        ("1970-01-01T00:02:00Z", None, 20.0, 100, 600, 40.0),
        (None, None, None, 0, 0, 0.0),
    ]
    text = click.unstyle(history_text(data, diff=False))
    assert f"  began       {local_time(10.0)}, took 1m40s\n  cost        520 steps made, 20 lost (" in text
    assert "s), 200 GPU-seconds\n  because     as submitted" in text
    assert f"  began       {local_time(120.0)}, has run for 20s\n" in text
    assert text.count("  began       not started yet\n") == 1


def test_the_first_line_sums_the_job_up(timed: Job, store: Store) -> None:
    data = history(store, timed, HomePaths(Path("/h")), 140.0)
    assert data["summary"] == {
        "result": "LAUNCHING", "attempts": 3, "trials": 0, "interruptions": 0, "seconds": 120.0, "steps_made": 620,
        "steps_lost": 620, "gpus": 2, "gpus_asked": None, "gpu_seconds": 240.0, "submitted": "1970-01-01T00:00:00Z",
        "ended": None,
    }  # fmt: skip
    first, second, *_ = click.unstyle(history_text(data, diff=False)).splitlines()
    assert first == "timed-1  LAUNCHING  3 attempts, 2m00s, 620 steps made, 620 lost, 240 GPU-seconds"
    assert second == "its turn"


def test_the_sum_of_an_ended_job_stays_and_has_its_end(timed: Job, store: Store) -> None:
    with store.transaction():
        store.move(timed.id, JobState.FAILED, reason="over", at=130.0)
    found = history(store, store.job(timed.id), HomePaths(Path("/h")), 9999.0)
    assert (found["summary"]["seconds"], found["summary"]["ended"]) == (110.0, "1970-01-01T00:02:10Z")
    assert found["attempts"][1]["seconds"] == 10.0


def test_trials_and_attempts_without_a_gpu_are_named_in_the_sum(store: Store) -> None:
    trial = Trial(1, 0, (Candidate("lower_lr", Knobs(lr=0.01)),), 0, 50, 150, 400)
    with store.transaction():
        job = store.add_job(JobSpec(name="tried", run=("x",)), Path("/"), at=1.0)
        store.put_attempt(Attempt(job.id, 1, "h", Knobs(), None, "as submitted", by_person=True))
        assert history_text(history(store, job, HomePaths(Path("/h")), 9.0), diff=False).count("1 attempt,") == 1
        store.put_attempt(Attempt(job.id, 2, "h", Knobs(lr=0.01), "lower_lr", "a trial", trial=trial))
    text = click.unstyle(history_text(history(store, job, HomePaths(Path("/h")), 9.0), diff=False))
    assert text.startswith("tried-1  QUEUED  2 attempts, 1 of them trials, 0s, 0 steps made, 0 lost, no GPU leased\n")


@pytest.mark.parametrize("card", [None, Gpu("NVIDIA A100-SXM4-40GB", (8, 0))])
def test_what_a_site_was_asked_for_is_said_where_its_node_reports_no_gpu(store: Store, card: Gpu | None) -> None:
    at_site = {"node": "n1", "gpus_asked": "A100:1", "gpus": (card,) if card else ()}
    with store.transaction():
        job = store.add_job(JobSpec(name="far", run=("x",)), Path("/"), at=1.0)
        store.put_attempt(
            Attempt(job.id, 1, "lab", Knobs(), None, "", by_person=True, started_at=2.0, ended_at=9.0, **at_site)
        )
        store.put_attempt(Attempt(job.id, 2, "lab", Knobs(), None, "", by_person=True))
    data = history(store, job, HomePaths(Path("/h")), 9.0)
    assert [each["gpus_asked"] for each in (data["summary"], *data["attempts"])] == ["A100:1", "A100:1", None]
    text = click.unstyle(history_text(data, diff=False))
    unseen = "A100:1 asked; the node reports none"
    if card:
        assert "attempt 1 on lab, node n1 (NVIDIA A100-SXM4-40GB)\n" in text
        assert "0 lost, 7 GPU-seconds\n" in text and unseen not in text
        with store.transaction():
            store.put_attempt(replace(store.attempts(job.id)[0], nodes=3))
        whole = history(store, job, HomePaths(Path("/h")), 9.0)["summary"]
        assert (whole["gpus"], whole["gpu_seconds"]) == (3, 21.0)
    else:
        assert text.startswith(f"far-1  QUEUED  2 attempts, 7s, 0 steps made, 0 lost, {unseen}\n")
        assert f"attempt 1 on lab, node n1 ({unseen})\n" in text
        assert f"cost        0 steps made, 0 lost, {unseen}\n" in text
        assert "no GPU leased" not in text


def test_a_knob_without_a_value_is_not_set_or_off(timed: Job, store: Store) -> None:
    data = history(store, timed, HomePaths(Path("/h")), 140.0)
    text = click.unstyle(history_text(data, diff=True))
    # With zero-edit the script may clip by itself.
    assert "  changed     lr: not set -> 0.01\n  changed     clip: not set -> 1\n" in text
    assert "  changed     clip: 1 -> not set\n" in text
    flags = {**data, "job": {**data["job"], "knob_mode": "flags"}}
    text = click.unstyle(history_text(flags, diff=False))
    assert "  changed     lr: not set -> 0.01\n  changed     clip: off -> 1\n" in text


@pytest.mark.parametrize(("saturated", "warns"), [(0, False), (5, False), (6, True)])
def test_the_history_tells_how_often_numbers_were_saturated_and_warns_above_a_thousandth(
    job: Job, store: Store, rung: Rung, saturated: int, warns: bool
) -> None:
    with store.transaction():
        store.put_attempt(replace(store.attempts(job.id)[1], saturation=Saturation(5000, saturated)))
    store.close()
    first, last = strict(rung("history", "--json", "two tries").out)["attempts"]
    assert first["saturation"] is None
    assert (last["saturation"]["updates"], last["saturation"]["saturated"]) == (5000, saturated)
    assert last["saturation"]["share"] == saturated / 5000
    assert (last["saturation"]["warning"] is not None) is warns
    text = rung("history", "two tries").out
    assert text.count("  saturated   in ") == 1 and f"  saturated   in {saturated} of 5000 updates" in text
    warning = (
        "  warning     values that left a place in FP32 did not fit FP16 in 0.12 % of the updates (6 of 5000): the"
    )
    assert (warning in text) is warns and text.count("warning") == warns
