"""Tests the survey of this machine with a stand-in nvidia-smi: its GPUs, who uses them, and the number of slots."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import UsageError
from rung.jobs.model.gpu import Gpu
from rung.jobs.spec.resources import GpuRequest
from rung.runner.hosts.this_machine import HERE, lacks_gpus, max_parallel, survey_here, visible, why_no_gpu
from tests.support.stand_in_gpus import stand_in_gpus

GPUS = [Gpu("TITAN RTX", (7, 5), index, f"GPU-{letter}{letter}") for index, letter in enumerate("abc")]
A100 = "40960, 580.95.05, 8.0, NVIDIA A100-SXM4-40GB"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return a function that gives this machine GPUs."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    def make(count: int, *processes: str, **card: str) -> list[str]:
        return stand_in_gpus(tmp_path / "bin", count, processes, **card)

    return make


def request(text: Any) -> GpuRequest:
    return GpuRequest.model_validate(text)


def test_the_gpus_are_those_of_the_driver(machine: Callable[..., list[str]]) -> None:
    uuids = machine(2)
    report = survey_here({})
    assert [(state.gpu.uuid, state.gpu.index, state.gpu.type) for state in report.gpus] == [
        (uuids[0], 0, "TITANRTX"),
        (uuids[1], 1, "TITANRTX"),
    ]
    assert report.host == HERE and not report.gpus[0].foreign_processes


def test_the_job_of_a_process_is_found_and_others_are_foreign(machine: Callable[..., list[str]]) -> None:
    with subprocess.Popen(["sleep", "600"], env={"RUNG_JOB": "train-3", "PATH": os.environ["PATH"]}) as process:
        uuids = machine(2)
        machine(2, f"{uuids[0]}, {process.pid}, 900, python", f"{uuids[1]}, 999999999, 900, python")
        first, second = survey_here({}).gpus
        process.kill()
    assert (first.job, first.foreign_processes) == ("train-3", ())
    assert (second.job, second.foreign_processes) == (None, ("pid 999999999 python",))


@pytest.mark.parametrize(
    ("named", "found"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("2,0", [2, 0]),
        ("GPU-bb", [1]),
        ("GPU-b, GPU-c", [1, 2]),
        ("GPU-", []),
        ("1,7,2", [1]),
        ("1,1", [1]),
        ("MIG-1", []),
    ],
)
def test_only_the_gpus_that_the_environment_shows_are_taken(named: str | None, found: list[int]) -> None:
    assert [gpu.index for gpu in visible(GPUS, named)] == found


def test_the_environment_of_the_controller_limits_the_survey(machine: Callable[..., list[str]]) -> None:
    uuids = machine(2)
    assert [state.gpu.uuid for state in survey_here({"CUDA_VISIBLE_DEVICES": "1"}).gpus] == uuids[1:]


def test_a_driver_that_does_not_work_is_shown_in_one_line(
    machine: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(0)
    assert why_no_gpu(survey_here({})) == "no GPU, or none that CUDA_VISIBLE_DEVICES shows"
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho 'Driver/library \33[31mmismatch' >&2; exit 18\n")
    assert why_no_gpu(survey_here({})) == "the GPU driver says: Driver/library mismatch"
    assert lacks_gpus([request("A100")], survey_here({})) == ""  # nobody knows
    (tmp_path / "bin" / "nvidia-smi").chmod(0o600)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    assert why_no_gpu(survey_here({})).startswith("nvidia-smi cannot be run: ")
    (tmp_path / "bin" / "nvidia-smi").unlink()
    assert why_no_gpu(survey_here({})) == "no nvidia-smi"


def test_a_machine_lacks_what_no_request_fits(machine: Callable[..., list[str]]) -> None:
    machine(2, card=A100)
    report = survey_here({})
    assert lacks_gpus([request("A100:2")], report) == ""
    assert lacks_gpus([request("P100"), request({"memory": ">=40g"})], report) == ""
    assert lacks_gpus([request("P100"), request("A100:3")], report) == (
        "does not have a P100 or 3 A100 (it has A100, A100)"
    )


def test_the_number_of_slots_is_that_of_the_cores_unless_it_is_set() -> None:
    assert max_parallel({}) == max_parallel({"RUNG_MAX_PARALLEL": " "}) == len(os.sched_getaffinity(0))
    assert max_parallel({"RUNG_MAX_PARALLEL": "12"}) == 12
    for wrong in ("0", "-1", "1.5", "many", "10001", "9" * 99):
        with pytest.raises(UsageError, match=r"RUNG_MAX_PARALLEL: give how many .* from 1 to 10000 \(got"):
            max_parallel({"RUNG_MAX_PARALLEL": wrong})
