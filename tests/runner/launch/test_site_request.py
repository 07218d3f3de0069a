"""Tests what of a job file a site is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from rung.jobs.site.settings import Asked
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.launch.site_request import asked_of


def spec(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"name": "a", "run": "x", **fields})


def test_a_job_that_says_nothing_asks_for_one_node_and_nothing_else() -> None:
    assert asked_of(spec()) == Asked()


def test_all_that_a_job_file_says_is_asked_for() -> None:
    resources = {"gpu": ["A100:2", "P100:1"], "cpus": 8, "memory": "64g", "time": "1-00", "nodes": 3}
    section = {"partition": "gpu", "account": "lab", "qos": "high", "options": ["--constraint=ib"]}
    assert asked_of(spec(resources=resources, slurm=section)) == Asked(
        time=86_400,
        nodes=3,
        gpus=2,
        gpu="A100",
        cpus=8,
        memory=64 << 30,
        partition="gpu",
        account="lab",
        qos="high",
        options=("--constraint=ib",),
    )


@pytest.mark.parametrize("gpu", ["titan rtx:1", "TITANRTX"])
def test_the_type_of_a_gpu_is_the_one_that_rung_uses(gpu: str) -> None:
    assert asked_of(spec(resources={"gpu": gpu})).gpu == "TITANRTX"
