"""Tests submitting, retrying and cancelling a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import UsageError
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.host import Host
from rung.jobs.model.knobs import Knobs, Precision
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.hosts.survey import GpuState, Report
from rung.runner.hosts.this_machine import HERE
from rung.runner.launch.submit import cancel, changed_knobs, refuse_impossible, retry, submit
from rung.runner.state.store import Store

HOSTS = [Host("titan", "192.0.2.1")]
IMAGE = f"x@sha256:{'0' * 64}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "rung.db")
    yield opened
    opened.close()


def spec(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"name": "a", "run": "x {lr} {clip}", "knobs": {"lr": 0.1}, **fields})


def submitted(store: Store, *states: JobState) -> Job:
    job = submit(store, spec(), Path("/o"), at=1.0)
    for state in states:
        with store.transaction():
            store.move(job.id, state, reason="on its way", at=2.0)
    return store.job(job.id)


def test_a_field_for_containers_is_refused_without_an_image(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a: volumes needs an image"):
        refuse_impossible(spec(volumes=["/a:/b"]), tmp_path, lambda: HOSTS)
    refuse_impossible(spec(image=IMAGE, volumes=["/a:/b"]), tmp_path, lambda: HOSTS)


def test_a_gpu_that_this_machine_does_not_have_is_refused_without_an_image(tmp_path: Path) -> None:
    here = Report(HERE, gpus=(GpuState(Gpu("Tesla P100", (6, 0))),))
    refuse_impossible(spec(resources={"gpu": "P100"}), tmp_path, list, lambda: here)
    refuse_impossible(spec(image=IMAGE, resources={"gpu": "A100"}), tmp_path, lambda: HOSTS, lambda: here)
    lacking = (
        r"a: resources.gpu: this machine does not have an A100 \(it has P100\); ask for another GPU, or name an image"
    )
    with pytest.raises(UsageError, match=lacking):
        refuse_impossible(spec(resources={"gpu": "A100"}), tmp_path, list, lambda: here)
    asked = spec(resources={"gpu": "P100"}, envs={"CUDA_VISIBLE_DEVICES": "0"})
    with pytest.raises(UsageError, match=r"a: envs\.CUDA_VISIBLE_DEVICES: Rung sets it"):
        refuse_impossible(asked, tmp_path, list, lambda: here)


def test_a_wrong_number_of_slots_is_refused_before_anything_is_queued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNG_MAX_PARALLEL", "two")
    with pytest.raises(UsageError, match="RUNG_MAX_PARALLEL"):
        refuse_impossible(spec(), tmp_path, list)
    refuse_impossible(spec(image=IMAGE), tmp_path, lambda: HOSTS)


def test_a_job_with_an_image_is_refused_where_no_host_is_listed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the list of hosts is empty"):
        refuse_impossible(spec(image=IMAGE), tmp_path, list)
    refuse_impossible(spec(), tmp_path, list)


def test_images_by_gpu_need_a_requested_gpu(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="image is a map by GPU"):
        refuse_impossible(spec(image={"p100": IMAGE}), tmp_path, lambda: HOSTS)
    refuse_impossible(spec(image={"p100": IMAGE}, resources={"gpu": "P100"}), tmp_path, lambda: HOSTS)
    refuse_impossible(spec(image={"cpu": IMAGE}), tmp_path, lambda: HOSTS)


def test_a_missing_workdir_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refuse_impossible(spec(), tmp_path, list)
    for workdir in ("nowhere", "file"):
        with pytest.raises(UsageError, match=f"workdir {tmp_path}/{workdir} is not a folder"):
            refuse_impossible(spec(workdir=workdir), tmp_path, list)


def test_new_to_queued(store: Store) -> None:
    job = submit(store, spec(), Path("/o"), at=7.0)
    assert (job.state, job.created_at, store.origin(job.id)) == (JobState.QUEUED, 7.0, Path("/o"))


def test_queued_to_cancelled_before_it_started(store: Store) -> None:
    job = submitted(store)
    cancel(store, job, at=3.0)
    found = store.job(job.id)
    assert (found.state, found.reason) == (JobState.CANCELLED, "cancelled before it started")
    assert [event.kind for event in store.events(job.id)] == ["submitted", "cancel_requested", "state"]


@pytest.mark.parametrize("state", [JobState.LAUNCHING, JobState.RECOVERING])
def test_cancelling_a_running_job_requests_its_end(store: Store, state: JobState) -> None:
    job = submitted(store, *dict.fromkeys([JobState.LAUNCHING, state]))
    cancel(store, job, at=3.0)
    found = store.job(job.id)
    assert (found.state, found.cancel_requested) == (state, True)


def test_cancelling_a_job_that_was_just_launched_requests_its_end(store: Store) -> None:
    job = submitted(store)
    with store.transaction():
        store.move(job.id, JobState.LAUNCHING, reason="its turn", at=2.0)
    cancel(store, job, at=3.0)  # it was read while it was still QUEUED
    assert (store.job(job.id).state, store.job(job.id).cancel_requested) == (JobState.LAUNCHING, True)


def test_an_ended_job_has_nothing_to_cancel(store: Store) -> None:
    early = submitted(store)
    with store.transaction():
        store.move(early.id, JobState.LAUNCHING, reason="its turn", at=1.5)
        store.move(early.id, JobState.FAILED, reason="no", at=2.0)
    with pytest.raises(UsageError, match="a-1 is FAILED already; there is nothing to cancel"):
        cancel(store, early, at=3.0)
    assert not store.job(early.id).cancel_requested


@pytest.mark.parametrize("ended", [JobState.FAILED, JobState.CANCELLED])
def test_failed_or_cancelled_to_queued_with_new_knobs(store: Store, ended: JobState) -> None:
    job = submitted(store)
    cancel(store, job, at=2.0) if ended is JobState.CANCELLED else None
    with store.transaction():
        store.put_attempt(Attempt(job.id, 1, "h", job.knobs, None, "w"))
        if ended is JobState.FAILED:
            store.move(job.id, JobState.LAUNCHING, reason="its turn", at=1.5)
            store.move(job.id, JobState.FAILED, reason="no", at=2.0)
    retry(store, store.job(job.id), {"lr": "1e-4", "clip": "2"}, at=3.0)
    found = store.job(job.id)
    assert (found.state, found.reason, found.settled) == (JobState.QUEUED, "retried by a person", 1)
    assert not found.cancel_requested
    assert (found.knobs.lr, found.knobs.clip) == (1e-4, 2.0)
    reported = next(event for event in store.events(job.id) if event.kind == "retried")
    assert reported.data == {"knobs": {"lr": [0.1, 1e-4], "clip": [None, 2.0]}}
    assert len(store.attempts(job.id)) == 1


def test_a_running_job_cannot_be_retried(store: Store) -> None:
    job = submitted(store, JobState.LAUNCHING, JobState.RUNNING)
    before = store.events(job.id)
    with pytest.raises(UsageError, match="a-1 is RUNNING; only a FAILED or CANCELLED job"):
        retry(store, job, {"lr": "1e-4"}, at=3.0)
    assert (store.job(job.id).knobs.lr, store.events(job.id)) == (0.1, before)


def test_two_people_retrying_at_once_retry_it_once(store: Store) -> None:
    job = submitted(store, JobState.LAUNCHING, JobState.FAILED)
    retry(store, job, {}, at=3.0)
    with pytest.raises(UsageError, match="a-1 is QUEUED"):
        retry(store, job, {}, at=3.0)


def a_job(**fields: Any) -> Job:
    made = spec(**fields)
    return Job("a-1", made, JobState.FAILED, "", 0.0, 0.0, made.knobs.knobs())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"lr": "1e-4"}, {"lr": 1e-4}),
        ({"clip": "off"}, {"clip": None}),
        ({"precision": "fp32", "batch": "8"}, {"precision": Precision.FP32, "batch": 8}),
        ({}, {}),
    ],
)
def test_set_is_read_like_a_job_file(settings: dict[str, str], expected: dict[str, Any]) -> None:
    job = a_job(knobs={"mode": "inside", "lr": 0.1, "clip": 5.0})
    assert changed_knobs(job, settings) == job.knobs.but(**expected)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("lrr", "1", "--set lrr: no such knob; known: lr, clip"),
        ("batch", "8", "--set batch: the job cannot receive batch: nothing in run, envs or files carries {batch}"),
        ("lr", "-1", "--set lr: Input should be greater than 0"),
        ("lr", "nan", "--set lr: Input should be"),
        ("lr", "", "--set lr: Input should be a valid number"),
        ("clip", "hard", "--set clip: Input should be a valid number"),
    ],
)
def test_a_bad_setting_is_reported_and_changes_nothing(name: str, value: str, words: str) -> None:
    job = a_job()
    with pytest.raises(UsageError) as raised:
        changed_knobs(job, {name: value})
    assert str(raised.value).startswith(words)
    assert job.knobs == Knobs(lr=0.1, growth_interval=2000, precision=Precision.AMP_FP16)
