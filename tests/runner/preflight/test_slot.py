"""Tests that `rung check` and the dry run say which slot of this machine a job would get, or why it would wait."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.model.engine import PROCESS
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.launch.submit import cancel, submit
from rung.runner.preflight.slot import preview_slot
from rung.runner.state.next_attempt import Placement, asked_by_person
from rung.runner.state.store import Store
from rung.runner.state.transitions import launching
from tests.support.places import died, record
from tests.support.stand_in_gpus import stand_in_gpus

TWO = {"RUNG_MAX_PARALLEL": "2"}


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return stand_in_gpus(tmp_path / "bin", 2)


def spec(*requests: str, **fields: Any) -> JobSpec:
    return JobSpec.model_validate({"name": "a", "run": "true", "resources": {"gpu": list(requests)}, **fields})


def add(store: Store, asked: JobSpec, *gpus: Gpu, queued: bool = False) -> str:
    """Add a job that runs on these GPUs, or waits."""
    job = submit(store, asked, Path("/o"), at=1.0)
    if not queued:
        launching(store, job, asked_by_person(job, (), (), Placement("localhost", gpus)), at=2.0)
        assert store.job(job.id).state is JobState.LAUNCHING
    return job.id


def test_the_slot_is_what_the_others_leave(tmp_path: Path, gpus: list[str]) -> None:
    first, second = (Gpu("NVIDIA TITAN RTX", (7, 5), index, uuid, 24 << 30) for index, uuid in enumerate(gpus))
    assert preview_slot(spec(), "x", None, TWO).text == "one of 2 for jobs without a GPU, 0 in use"
    assert preview_slot(spec("TITANRTX:2"), "x", None, TWO).text == f"TITANRTX 0 ({gpus[0]}), TITANRTX 1 ({gpus[1]})"
    store = Store(tmp_path / "rung.db")
    holder = add(store, spec("TITANRTX"), first)
    assert preview_slot(spec("TITANRTX"), "x", store, TWO).gpus[0].uuid == second.uuid
    assert preview_slot(spec(), "x", store, TWO).text == "one of 2 for jobs without a GPU, 0 in use"
    add(store, spec())
    assert preview_slot(spec(), "x", store, TWO).text == "one of 2 for jobs without a GPU, 1 in use"
    # Jobs that wait already come first, unless this one has a higher priority.
    waiting = [add(store, spec(*requests), queued=True) for requests in ((), ("TITANRTX",))]
    assert preview_slot(spec(), "x", store, TWO).waits == (
        "waits for a slot: localhost runs 2 of at most 2 without a GPU"
    )
    assert preview_slot(spec("TITANRTX"), "x", store, TWO).waits == (
        f"waits for a TITANRTX: localhost's TITANRTX 0 is in use by {holder}; "
        f"localhost's TITANRTX 1 is in use by {waiting[1]}"
    )
    assert preview_slot(spec("TITANRTX", priority=1), "x", store, TWO).gpus[0].uuid == second.uuid
    store.close()


def test_a_gpu_that_is_set_aside_is_no_slot(tmp_path: Path, gpus: list[str]) -> None:
    first = Gpu("NVIDIA TITAN RTX", (7, 5), 0, gpus[0])
    store, here = Store(tmp_path / "rung.db"), {"host": "localhost", "engine": PROCESS, "gpus": (first,)}
    record(store, tmp_path, [died("a", time.time() - 2, **here), died("b", time.time() - 1, **here)])
    for job in store.jobs():
        cancel(store, job, at=time.time())
    assert preview_slot(spec("TITANRTX"), "x", store, TWO).gpus[0].uuid == gpus[1]
    assert "localhost's TITANRTX 0 is set aside until " in preview_slot(spec("TITANRTX:2"), "x", store, TWO).waits
    store.close()


def test_check_shows_the_slots_of_this_machine_and_of_a_job(run_rung: Any, tmp_path: Path, gpus: list[str]) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"name": "a", "run": "true", "resources": {"gpu": "TITANRTX"}}), encoding="utf-8")
    _, out, _ = run_rung("check", "--json", file)
    said = {finding["what"]: finding["good"] for finding in json.loads(out)}
    assert said["this machine: TITANRTX 0, TITANRTX 1"] and said[f"its slot now: TITANRTX 0 ({gpus[0]})"]
    cores = len(os.sched_getaffinity(0))
    assert said[f"jobs without a GPU: at most {cores} at once on this machine (RUNG_MAX_PARALLEL)"]
    stand_in_gpus(tmp_path / "bin", 1, card="16384, 580.95.05, 6.0, Tesla P100-PCIE-16GB")
    code, out, _ = run_rung("check", "--json", file)
    bad = [finding["what"] for finding in json.loads(out) if not finding["good"]]
    assert code == 1 and any("this machine does not have a TITANRTX (it has P100)" in what for what in bad)
    assert "this machine: P100 0" in {finding["what"] for finding in json.loads(out)}


def test_a_launch_that_this_machine_cannot_run_ends_in_one_line(
    run_rung: Any, home: Path, tmp_path: Path, gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"name": "a", "run": "true", "resources": {"gpu": "A100"}}), encoding="utf-8")
    why = "this machine does not have an A100 (it has TITANRTX, TITANRTX)"
    fix = "ask for another GPU, or name an image to run on a host"
    for words in (["launch", file], ["launch", "--dryrun", file]):
        assert run_rung(*words) == (2, "", f"rung: a: resources.gpu: {why}; {fix}\n")
    monkeypatch.setenv("RUNG_MAX_PARALLEL", "all")
    code, _, err = run_rung("controller", "--until-idle")
    assert code == 2 and err.startswith("rung: RUNG_MAX_PARALLEL: give how many jobs") and err.count("\n") == 1
    assert [finding for finding in json.loads(run_rung("check", "--json")[1]) if "RUNG_MAX_PARALLEL" in finding["what"]]
    assert not (home / "jobs").exists()
